#!lua flags=allow-oom
-- Remove names that were closed, unless somebody noted a later generation of them meanwhile.
-- ARGV: names and the generations that were closed.

for i = 1, #ARGV, 2 do
  if redis.call("HGET", KEYS[1], ARGV[i]) == ARGV[i + 1] then
    redis.call("HDEL", KEYS[1], ARGV[i])
  end
end
