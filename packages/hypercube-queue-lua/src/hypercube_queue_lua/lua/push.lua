#!lua
-- Store messages. ARGV: heads, ids with bodies, the generation under which the pusher has noted
-- the name of the queue, and 1 if it has noted it in this very call, else 0.
-- Reply: -1 and the generation to be noted before the push is repeated, where that was closed or
-- nothing is known of the queue; else 0, then the indexes of retained ids.

redis.call("HSET", META, "pushed", string.format("%.0f", now))
if generation() > tonumber(ARGV[3]) or not (layout or ARGV[4] == "1") then
  return { -1, generation() }
end

local ids, bodies, delays = messages(ARGV[1], ARGV[2])
local retained = redis.call("HMGET", BODIES, unpack(ids))
local fields, new, waits = {}, {}, {}
local reply = { 0 }

local count = 0
for i = 1, #ids do
  if retained[i] then
    reply[#reply + 1] = i
  else
    count = count + 1
    fields[2 * count - 1], fields[2 * count] = ids[i], bodies[i]
    new[count], waits[count] = ids[i], delays[i]
  end
end

if count > 0 then
  if not layout then
    redis.call("HSET", META, "layout", LAYOUT)
  end
  redis.call("HSET", BODIES, unpack(fields))
  place(new, waits)
end
return reply
