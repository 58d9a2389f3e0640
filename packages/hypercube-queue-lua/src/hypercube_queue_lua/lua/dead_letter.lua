#!lua flags=allow-oom
-- Set messages aside. ARGV: heads, ids with bodies, tokens. Reply: the indexes of stale deliveries.

local ids, bodies = messages(ARGV[1], ARGV[2])
local states, stale = owned(ids, ARGV[3])
local dying, contents, counts = {}, {}, {}

for i = 1, #ids do
  if states[i] then
    dying[#dying + 1] = ids[i]
    contents[#contents + 1] = ids[i]
    contents[#contents + 1] = bodies[i]
    counts[#counts + 1] = ids[i]
    counts[#counts + 1] = buried(attempts(states[i]), "")
  end
end

if #dying > 0 then
  redis.call("HSET", BODIES, unpack(contents))
  redis.call("HSET", STATE, unpack(counts))
  redis.call("ZREM", LEASED, unpack(dying))
  bury(dying)
end
return stale
