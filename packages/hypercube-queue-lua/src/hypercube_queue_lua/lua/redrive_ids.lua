#!lua flags=allow-oom
-- Make these dead messages ready. ARGV: lengths of ids, ids. Reply: how many were moved.

local ids = cut(ARGV[1], ARGV[2])
local deaths = redis.call("ZMSCORE", DEAD, unpack(ids))
local states = redis.call("HMGET", STATE, unpack(ids))
local moved, now_ready = {}, {}

for i = 1, #ids do
  -- One with a reason was set aside, because it cannot be read.
  if deaths[i] and (not states[i] or #states[i] == 5) then
    moved[#moved + 1] = ids[i]
    now_ready[#now_ready + 1] = 0
  end
end

if #moved > 0 then
  redis.call("ZREM", DEAD, unpack(moved))
  redis.call("HDEL", STATE, unpack(moved))
  place(moved, now_ready)
end
return #moved
