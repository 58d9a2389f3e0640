#!lua flags=allow-oom
-- Move deadlines. ARGV: lengths of ids, ids, tokens, microseconds from now.
-- Reply: the indexes of stale deliveries.

local ids = cut(ARGV[1], ARGV[2])
local states, stale = owned(ids, ARGV[3])
local deadline = now + ARGV[4]
local fields, leases = {}, {}

for i = 1, #ids do
  local state = states[i]
  if state then
    local position = struct.unpack(">d", state, 6)
    fields[#fields + 1] = ids[i]
    fields[#fields + 1] = leased(attempts(state), position, deadline, string.sub(state, 22))
    leases[#leases + 1] = deadline
    leases[#leases + 1] = ids[i]
  end
end

if #fields > 0 then
  redis.call("HSET", STATE, unpack(fields))
  redis.call("ZADD", LEASED, unpack(leases))
  if deadline - now < SLICE then
    wake()
  end
end
return stale
