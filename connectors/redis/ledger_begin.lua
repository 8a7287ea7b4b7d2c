-- Claims a command on a replica.
-- KEYS: ledger entry, lease of the replica.
-- ARGV: holder, attempt, ttl in ms, key of the lease under the holder's own name.
-- Returns {1, taken_over} when the caller may work, {0, state, holder} when it must not.
local entry = redis.call('HMGET', KEYS[1], 'state', 'holder', 'attempt', 'taken_over', 'lease')
local state, owner = entry[1], entry[2] or ''
local taken_over = 0
if state then
    if state ~= 'started' then
        return {0, state, owner}
    end
    if owner ~= ARGV[1] then
        -- The owner's own lease is read by the name it left here: one Redis, not a cluster.
        if owner == redis.call('HGET', KEYS[2], 'holder') or owner == redis.call('HGET', entry[5], 'holder') then
            return {0, state, owner}
        end
        taken_over = 1
    elseif entry[3] ~= ARGV[2] then
        return {0, state, owner}
    else
        -- The same attempt again: the client repeated a call whose answer was lost. The caller owns the entry.
        taken_over = tonumber(entry[4])
    end
end
redis.call('HSET', KEYS[1], 'state', 'started', 'holder', ARGV[1], 'attempt', ARGV[2],
    'taken_over', taken_over, 'lease', ARGV[4])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return {1, taken_over}
