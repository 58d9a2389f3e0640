#!lua flags=allow-oom
-- Remove these dead messages. ARGV: lengths of ids, ids. Reply: how many were removed.

local ids = cut(ARGV[1], ARGV[2])
local deaths = redis.call("ZMSCORE", DEAD, unpack(ids))
local gone = {}

for i = 1, #ids do
  if deaths[i] then
    gone[#gone + 1] = ids[i]
  end
end

if #gone > 0 then
  redis.call("ZREM", DEAD, unpack(gone))
  redis.call("HDEL", BODIES, unpack(gone))
  redis.call("HDEL", STATE, unpack(gone))
end
return #gone
