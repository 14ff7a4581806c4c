-- One chunk of a replica's batch: each request on its own, by the rules of rules.py. What only Redis knows:
-- a lease is held as long as its lock key is there; the key's value is the holder, whatever the state says.
--
-- KEYS  the set of job names (not on a Cluster, where it may lie on another node), then for each request the job's
--       lock and state
-- ARGV  node id; the time after which nothing is done, in microseconds, or ''; channel; then the requests
-- Reply the time alone if it is too late; else the time, what went wrong with the notice and with the set of
--       names ('' for nothing), and one verdict for each request. redis_wire.py writes and reads both.
--
-- All instants are microseconds since the epoch, exact as doubles up to 2^53. Lua's own conversion of numbers to
-- text drops digits, so numbers from outside stay text, and others go through text().

local AHEAD = 600000000

local function text(number)
  return string.format('%.0f', number)
end

local node, void_at, channel = ARGV[1], tonumber(ARGV[2]), ARGV[3]
local names = #KEYS % 2 -- 1: there is a set of names in front of the pairs
local time = redis.call('TIME')
local wall = tonumber(time[1]) * 1000000 + tonumber(time[2])
if void_at and wall > void_at then
  return {text(wall)}
end

local command = ''
local granted, released = {}, {}

-- Not every server's error says which command it was that failed.
local function call(name, ...)
  command = name
  return redis.call(name, ...)
end

local function load(key)
  local field = call('HMGET', key, 'holder', 'seq', 'token', 'slot', 'done', 'off')
  local state = {
    holder = field[1],
    seq = tonumber(field[2]) or 0,
    token = tonumber(field[3]) or 0,
    off = tonumber(field[6]),
    mark = '',
    done = '',
    ended = '',
  }
  if field[4] then
    local slot, slot_token, mark = string.match(field[4], '^(%d+):(%d+):(.*)$')
    if slot then
      state.slot, state.slot_token, state.mark, state.slot_text = tonumber(slot), slot_token, mark, field[4]
    end
  end
  if field[5] then
    local done, ended = string.match(field[5], '^(%d*):(%d*)$')
    state.done, state.ended = done or '', ended or ''
  end
  return state
end

-- The slot that bars earlier ones: not one that a wrong clock put far ahead.
local function barring(state)
  return state.slot and state.slot <= wall + AHEAD and state.slot
end

local function refused(lock, holder, state)
  if not holder then
    return 'F'
  end
  local foreign = holder ~= node and holder ~= state.holder
  return 'X;' .. text(call('PTTL', lock)) .. ';' .. (foreign and '1' or '0') .. ';' .. holder
end

-- The fields that a report changes, as arguments of HSET.
local function progress(state, tick, done, ago, settled)
  local fields = {}
  if tick == '' and done == '' and ago == '' and settled == '' then
    return fields
  end
  local stored = barring(state)
  if tick ~= '' and not (stored and tonumber(tick) <= stored) then
    fields = {'slot', tick .. ':' .. text(state.token) .. ':' .. state.mark}
  end
  local before = state.done .. ':' .. state.ended
  if done ~= '' and not (state.done ~= '' and tonumber(done) <= tonumber(state.done)) then
    state.done = done
  end
  if ago ~= '' then
    local ended = wall - tonumber(ago)
    if state.ended == '' or ended > tonumber(state.ended) then
      state.ended = text(ended)
    end
  end
  local after = state.done .. ':' .. state.ended
  if after ~= before then
    fields[#fields + 1] = 'done'
    fields[#fields + 1] = after
  end
  local till = tonumber(settled)
  if till and state.off and state.off >= 0 and state.off < till and till <= wall + AHEAD then
    fields[#fields + 1] = 'off'
    fields[#fields + 1] = settled
  end
  return fields
end

local handle = {}

function handle.A(job, lock, key, number, milliseconds, above)
  local holder, state = call('GET', lock), load(key)
  if holder and (holder ~= node or (state.holder == node and tonumber(number) <= state.seq)) then
    return refused(lock, holder, state)
  end
  local token = text(math.max(state.token + 1, tonumber(above) + 1, wall))
  local fields = {'holder', node, 'seq', number, 'token', token, 'since', text(wall)}
  local off = state.off
  if (not off and not state.slot) or (off and off < 0) then
    off = wall -- never seen before, or switched off until now: earlier slots are not owed
    fields[9], fields[10] = 'off', text(off)
  end
  -- The lock last: should the server refuse either of them, nobody has a lease that he was not told of.
  call('HSET', key, unpack(fields))
  call('SET', lock, node, 'PX', milliseconds)
  granted[#granted + 1] = job
  local ended = state.done .. ':' .. state.ended
  return 'G;' .. token .. ';' .. (off and text(off) or '') .. ';' .. ended .. ';' .. (state.slot_text or '')
end

function handle.N(_, lock, key, token, milliseconds, tick, done, ago, settled)
  local holder, state = call('GET', lock), load(key)
  if holder ~= node or state.token ~= tonumber(token) then
    return refused(lock, holder, state)
  end
  -- First what frees or keeps memory as it is: a server that is full refuses a write only if it is a script's first.
  call('PEXPIRE', lock, milliseconds)
  local fields = progress(state, tick, done, ago, settled)
  if fields[1] then
    call('HSET', key, unpack(fields))
  end
  return 'N'
end

function handle.R(job, lock, key, number, off, tick, done, ago, settled)
  local holder, state = call('GET', lock), load(key)
  -- A state of another holder says nothing about this lease: it was lost, or never written.
  if holder ~= node or (state.holder == node and state.seq > tonumber(number)) then
    return 'D0'
  end
  call('DEL', lock)
  released[#released + 1] = job
  local fields = progress(state, tick, done, ago, settled)
  if off == '1' then
    fields[#fields + 1] = 'off'
    fields[#fields + 1] = text(-wall)
  end
  if fields[1] then
    call('HSET', key, unpack(fields))
  end
  return 'D1'
end

function handle.C(_, lock, key, token, slot, mark)
  local holder, state = call('GET', lock), load(key)
  if holder ~= node or state.token ~= tonumber(token) then
    return 'L'
  end
  local asked, stored = tonumber(slot), barring(state)
  if asked > wall + AHEAD then
    return 'H'
  end
  if stored and asked == stored and state.slot_token == token then
    return 'C' -- asked again because the first answer was lost
  end
  if stored and asked <= stored then
    return 'T'
  end
  call('HSET', key, 'slot', slot .. ':' .. token .. ':' .. mark)
  return 'C'
end

local PATTERN = {
  A = '^A;([^;]+);(%d+);(%d+);(%d+)$',
  N = '^N;([^;]+);(%d+);(%d+);(%d*);(%d*);(%d*);(%d*)$',
  R = '^R;([^;]+);(%d+);([01]);(%d*);(%d*);(%d*);(%d*)$',
  C = '^C;([^;]+);(%d+);(%d+);(.*)$',
}

local function serve(number)
  local request = ARGV[number + 3]
  local kind = string.sub(request, 1, 1)
  local job, a, b, c, d, e, f = string.match(request, PATTERN[kind])
  return handle[kind](job, KEYS[names + 2 * number - 1], KEYS[names + 2 * number], a, b, c, d, e, f)
end

local reply = {text(wall), '', ''}
for number = 1, #ARGV - 3 do
  local ok, verdict = pcall(serve, number)
  if not ok then
    -- An error is a table since Redis 7, a text before.
    verdict = 'E;' .. command .. ';' .. tostring(type(verdict) == 'table' and verdict.err or verdict)
  end
  reply[number + 3] = verdict
end

local function attempt(place, name, ...)
  local done = redis.pcall(name, ...)
  if type(done) == 'table' and done.err then
    reply[place] = done.err
  end
end

if granted[1] and names == 1 then
  attempt(3, 'SADD', KEYS[1], unpack(granted))
end
if released[1] then
  attempt(2, 'PUBLISH', channel, table.concat(released, '\n'))
end
return reply
