#!lua flags=allow-oom
-- Close a generation of an unused queue: who knows of no later one cannot push from now on.
-- ARGV: microseconds for which nobody may have pushed, the generation.
-- Reply: 1, or 0 where the queue is in use.

if redis.call("EXISTS", BODIES) == 1 or was_used_within(ARGV[1]) then
  return 0
end
if generation() <= tonumber(ARGV[2]) then
  redis.call("HSET", META, "generation", ARGV[2] + 1)
end
return 1
