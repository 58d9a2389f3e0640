#!lua flags=allow-oom
-- Remove messages. ARGV: lengths of ids, ids, tokens. Reply: the indexes of stale deliveries.

local ids = cut(ARGV[1], ARGV[2])
local states, stale = owned(ids, ARGV[3])
local gone = ids

if #stale > 0 then
  gone = {}
  for i = 1, #ids do
    if states[i] then
      gone[#gone + 1] = ids[i]
    end
  end
end

if #gone > 0 then
  redis.call("HDEL", BODIES, unpack(gone))
  redis.call("HDEL", STATE, unpack(gone))
  redis.call("ZREM", LEASED, unpack(gone))
end
return stale
