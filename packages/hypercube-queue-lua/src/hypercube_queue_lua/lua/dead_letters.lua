#!lua flags=no-writes
-- Show the dead, the newest first. ARGV: how many, before which death, how many bytes (roughly).
-- Reply: heads (death, lengths of id, state and body), and ids with states and bodies.

local limit, before, budget = tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[3])
local heads, parts = {}, {}
local bytes, page = 0, 8

while #heads < limit and bytes < budget do
  local asked = math.min(limit - #heads, page)
  local found = redis.call(
    "ZRANGE", DEAD, before, "-inf", "BYSCORE", "REV", "LIMIT", 0, asked, "WITHSCORES"
  )
  local ids = {}
  for i = 1, #found, 2 do
    ids[#ids + 1] = found[i]
  end
  if #ids == 0 then
    break
  end
  local states = redis.call("HMGET", STATE, unpack(ids))
  local bodies = redis.call("HMGET", BODIES, unpack(ids))
  for i = 1, #ids do
    local state, body = states[i] or "", bodies[i] or ""
    heads[#heads + 1] = struct.pack(">dI1I4I4", tonumber(found[2 * i]), #ids[i], #state, #body)
    parts[#parts + 1] = ids[i]
    parts[#parts + 1] = state
    parts[#parts + 1] = body
    bytes = bytes + #body
  end
  before = "(" .. found[#found]
  if #ids < asked then
    break
  end
  local average = math.max(1, bytes / #heads)
  page = math.max(1, math.min(PAGE, math.floor((budget - bytes) / average)))
end

return { table.concat(heads), table.concat(parts) }
