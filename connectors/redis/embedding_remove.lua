-- Removes an entry of a RedisVL embedding cache if it is one of ours.
-- KEYS: the entry.  Returns 1 if it was removed.
local metadata = redis.call('HGET', KEYS[1], 'metadata')
if metadata and string.find(metadata, '"source": "warmup"', 1, true) then
    return redis.call('DEL', KEYS[1])
end
return 0
