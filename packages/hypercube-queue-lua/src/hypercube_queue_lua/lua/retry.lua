#!lua flags=allow-oom
-- Put messages back. ARGV: heads, ids with bodies, tokens. Reply: the indexes of stale deliveries.

local ids, bodies, delays = messages(ARGV[1], ARGV[2])
local states, stale = owned(ids, ARGV[3])
local back, waits, contents, counts = {}, {}, {}, {}

for i = 1, #ids do
  if states[i] then
    back[#back + 1] = ids[i]
    waits[#waits + 1] = delays[i]
    contents[#contents + 1] = ids[i]
    contents[#contents + 1] = bodies[i]
    counts[#counts + 1] = ids[i]
    counts[#counts + 1] = idle(attempts(states[i]))
  end
end

if #back > 0 then
  redis.call("HSET", BODIES, unpack(contents))
  redis.call("HSET", STATE, unpack(counts))
  redis.call("ZREM", LEASED, unpack(back))
  place(back, waits)
end
return stale
