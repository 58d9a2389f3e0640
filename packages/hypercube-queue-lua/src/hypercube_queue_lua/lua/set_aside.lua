#!lua flags=allow-oom
-- Bury a message that cannot be read, as it is. ARGV: id, token, reason.
-- Reply: 1, or 0 where the delivery is stale.

local ids = { ARGV[1] }
local states = owned(ids, ARGV[2])
if not states[1] then
  return 0
end
redis.call("HSET", STATE, ARGV[1], buried(attempts(states[1]), ARGV[3]))
redis.call("ZREM", LEASED, ARGV[1])
bury(ids)
return 1
