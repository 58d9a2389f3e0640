#!lua flags=allow-oom
-- Undo deliveries. ARGV: lengths of ids, ids, tokens. Reply: the indexes of stale deliveries.

local ids = cut(ARGV[1], ARGV[2])
local states, stale = owned(ids, ARGV[3])
local back, places, counts = {}, {}, {}

for i = 1, #ids do
  local state = states[i]
  if state then
    back[#back + 1] = ids[i]
    places[#places + 1] = struct.unpack(">d", state, 6)
    places[#places + 1] = ids[i]
    counts[#counts + 1] = ids[i]
    counts[#counts + 1] = idle(attempts(state) - 1)
  end
end

if #back > 0 then
  redis.call("HSET", STATE, unpack(counts))
  redis.call("ZREM", LEASED, unpack(back))
  redis.call("ZADD", RETURNED, unpack(places))
  wake()
end
return stale
