-- Uses each command that exchange.lua uses once, on keys of its own. Nothing stays: where DEL is not allowed, the keys
-- expire.
--
-- KEYS   a lock and a state of a job that does not exist
-- ARGV   channel
-- Reply  command and error, in turn, of what was refused

local refused = {}

local function try(...)
  local done = redis.pcall(...)
  if type(done) == 'table' and done.err then
    refused[#refused + 1] = (...)
    refused[#refused + 1] = done.err
  end
end

local lock, state = KEYS[1], KEYS[2]
try('TIME')
try('SADD', lock, 'check')
try('PEXPIRE', lock, 1000)
try('SET', lock, 'check', 'PX', 1000) -- over whatever is there
try('GET', lock)
try('PTTL', lock)
try('HSET', state, 'holder', 'check')
redis.pcall('PEXPIRE', state, 1000)
try('HMGET', state, 'holder')
try('DEL', lock, state)
try('PUBLISH', ARGV[1], '')
return refused
