#!lua flags=allow-oom
-- Wake the waiting pops of one queue object. ARGV: how many. Its key outlives nobody.

for _ = 1, tonumber(ARGV[1]) do
  redis.call("LPUSH", KEYS[1], "1")
end
redis.call("PEXPIRE", KEYS[1], 2000)
