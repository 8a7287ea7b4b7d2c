-- Puts one answer into a RedisVL semantic cache, with its end, in one step.
-- KEYS: the entry, the mark that revokes all answers to its query, the mark that revokes this answer.
-- ARGV: end and time of the decision (ms), the answer, then field, value, field, value, ...
-- Returns 'applied', 'resident' or 'revoked'.
local decided = tonumber(ARGV[2])
for mark = 2, 3 do
    local revoked = tonumber(redis.call('GET', KEYS[mark]) or '-1')
    if revoked >= decided then
        return 'revoked'
    end
end
local held = redis.call('HMGET', KEYS[1], 'response', 'expires_at_ms', 'issued_at_ms')
if held[1] then
    if held[3] and tonumber(held[3]) > decided then
        return 'resident'
    end
    if held[1] == ARGV[3] and held[2] then
        redis.call('HSET', KEYS[1], 'expires_at_ms', ARGV[1], 'issued_at_ms', ARGV[2])
        redis.call('PEXPIREAT', KEYS[1], ARGV[1])
        return 'resident'
    end
end
-- Fields of an earlier answer must not stay beside the new one.
redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1], unpack(ARGV, 4))
redis.call('PEXPIREAT', KEYS[1], ARGV[1])
return 'applied'
