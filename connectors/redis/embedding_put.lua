-- Puts one entry into a RedisVL embedding cache, with its end, in one step.
-- KEYS: the entry.  ARGV: life in ms, metadata as JSON, then field, value, field, value, ...
-- Returns 1 if it was put there, 0 if it was there.
if redis.call('EXISTS', KEYS[1]) == 1 then
    local metadata = redis.call('HGET', KEYS[1], 'metadata')
    -- A gateway's own entry is not ours to prolong or to label.
    if metadata and string.find(metadata, '"source": "warmup"', 1, true) then
        if redis.call('PEXPIRE', KEYS[1], ARGV[1], 'GT') == 1 then
            redis.call('HSET', KEYS[1], 'metadata', ARGV[2])
        end
    end
    return 0
end
redis.call('HSET', KEYS[1], 'metadata', ARGV[2], unpack(ARGV, 3))
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return 1
