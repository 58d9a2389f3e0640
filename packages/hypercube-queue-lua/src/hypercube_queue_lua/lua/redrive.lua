#!lua flags=allow-oom
-- Make dead messages ready, the oldest first. ARGV: how many, after which death.
-- Reply: how many were moved, how many were looked at, the last death looked at.

local found = redis.call(
  "ZRANGE", DEAD, "(" .. ARGV[2], "+inf", "BYSCORE", "LIMIT", 0, ARGV[1], "WITHSCORES"
)
if #found == 0 then
  return { 0, 0, "" }
end

local ids, moved, now_ready = {}, {}, {}
for i = 1, #found, 2 do
  ids[#ids + 1] = found[i]
end
local states = redis.call("HMGET", STATE, unpack(ids))
for i = 1, #ids do
  -- One with a reason was set aside, because it cannot be read.
  if not states[i] or #states[i] == 5 then
    moved[#moved + 1] = ids[i]
    now_ready[#now_ready + 1] = 0
  end
end

if #moved > 0 then
  redis.call("ZREM", DEAD, unpack(moved))
  redis.call("HDEL", STATE, unpack(moved))
  place(moved, now_ready)
end
return { #moved, #ids, found[#found] }
