#!lua
-- Store messages. ARGV: heads, and ids with bodies.
-- Reply: 1 if nothing was known of the queue, else 0; then the indexes of retained ids.

local ids, bodies, delays = messages(ARGV[1], ARGV[2])
local retained = redis.call("HMGET", BODIES, unpack(ids))
local fields, new, waits = {}, {}, {}
local reply = { layout and 0 or 1 }

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
