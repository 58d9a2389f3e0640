#!lua
-- Note the names of queues, before anything is stored in them. ARGV: names and the generations
-- that are known of them. Reply: the generations that are noted now, which may be later ones.

local reply = {}
for i = 1, #ARGV, 2 do
  local noted = redis.call("HGET", KEYS[1], ARGV[i])
  -- Whoever writes here by hand may write anything.
  local known = noted and string.match(noted, "^%d%d?%d?%d?%d?%d?%d?%d?%d?$") and tonumber(noted)
  local generation = tonumber(ARGV[i + 1])
  if not known or known < generation then
    redis.call("HSET", KEYS[1], ARGV[i], ARGV[i + 1])
    known = generation
  end
  reply[#reply + 1] = known
end
return reply
