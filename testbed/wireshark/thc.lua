-- Wireshark dissector for THC (docs/protocol.md; rules are cited as P1, P2, ...).
-- docs/wireshark.md explains how to install and use it.

local thc = Proto("thc", "Tensor Homomorphic Compression")

local HEADER = 20 -- P1
local VERSION = 3
local NOBODY = 255

-- P2: name, direction, and the payload's length. DATA and RESULT have a length for each form.
local kinds = {
    [0x01] = { name = "NORM", up = true, lengths = { 20 } },
    [0x02] = { name = "DATA", up = true, lengths = { 512, 64, 128, 192, 256, 384, 1024 } },
    [0x03] = { name = "RAW", up = true, lengths = { 1024 } },
    [0x11] = { name = "NORM_RESULT", answers = 0x01, lengths = { 20 } },
    [0x12] = { name = "RESULT", answers = 0x02, lengths = { 1024, 512, 576, 640, 704, 768, 832, 896, 960 } },
    [0x13] = { name = "RAW_RESULT", answers = 0x03, lengths = { 1024 } },
    [0x14] = { name = "STRAGGLER", lengths = { 8 } },
    [0x15] = { name = "MISMATCH", lengths = { 40 } },
    [0x16] = { name = "NUDGE", lengths = { 12 } },
    [0x21] = { name = "JOIN", up = true, lengths = { 32 } },
    [0x22] = { name = "LEAVE", up = true, lengths = { 8 } },
    [0x31] = { name = "WELCOME", lengths = { 128 }, lists = true },
    [0x32] = { name = "PENDING", lengths = { 8 } },
    [0x33] = { name = "REFUSED", lengths = { 4 } },
    [0x34] = { name = "BYE", lengths = { 0 } },
    [0x35] = { name = "DESCRIPTION", lengths = { 128 }, lists = true },
    [0x36] = { name = "ASK", lengths = { 8 } },
}

local kind_names = {}
for byte, kind in pairs(kinds) do
    kind_names[byte] = kind.name
end

local modes = { [0] = "compressed", [1] = "RAW" }
local policies = { [0] = "reliable", [1] = "best-effort" }
local reasons = {
    [1] = "unknown job",
    [2] = "wrong cookie",
    [3] = "worker number out of range",
    [4] = "worker number in use",
    [5] = "session re-forming",
    [6] = "computes other numbers",
    [7] = "not the first share",
    [8] = "the root does not let the rack in",
}

local f = {
    -- P1
    version = ProtoField.uint8("thc.version", "Version"),
    kind = ProtoField.uint8("thc.kind", "Kind", base.HEX, kind_names),
    flags = ProtoField.uint8("thc.flags", "Flags", base.HEX),
    flag_nudge = ProtoField.bool("thc.flags.nudge", "Nudge", 8, nil, 0x01, "Pass the slot on if it is incomplete (P17)"),
    flag_root = ProtoField.bool("thc.flags.root", "Root", 8, nil, 0x02, "Passed on by a rack: numbers of workers are of racks (P36)"),
    flag_mark = ProtoField.bool("thc.flags.mark", "Mark", 8, nil, 0x04, "Packets of this sum met congestion (P46)"),
    workers = ProtoField.uint8("thc.workers", "Workers of the job"),
    job = ProtoField.uint16("thc.job", "Job"),
    worker = ProtoField.uint8("thc.worker", "Worker"),
    table = ProtoField.uint8("thc.table", "Lookup table"),
    cookie = ProtoField.uint32("thc.cookie", "Cookie", base.HEX),
    round = ProtoField.uint32("thc.round", "Round"),
    slot = ProtoField.uint16("thc.slot", "Slot"),
    count = ProtoField.uint16("thc.count", "Workers in the sum"),
    -- P2
    indices = ProtoField.bytes("thc.data.indices", "Indices, 4 bits each"),
    sums = ProtoField.bytes("thc.result.sums", "Sums, in as many bits each as WELCOME says"),
    integers = ProtoField.bytes("thc.raw.integers", "Integers, 32 bits each"),
    -- P3
    norm_tag = ProtoField.uint32("thc.norm.tag", "Tag", base.HEX),
    norm_value = ProtoField.float("thc.norm.value", "Value"),
    norm_nan = ProtoField.uint8("thc.norm.nan_worker", "Not finite at worker"),
    norm_length = ProtoField.uint32("thc.norm.length", "Coordinates of the call"),
    norm_call = ProtoField.uint16("thc.norm.call", "Call"),
    norm_table = ProtoField.uint8("thc.norm.table", "Lookup table"),
    norm_mode = ProtoField.uint8("thc.norm.mode", "Mode", base.DEC, modes),
    norm_key = ProtoField.uint32("thc.norm.key", "Tensor key", base.HEX),
    -- P2, P15, P17
    straggler_kind = ProtoField.uint8("thc.straggler.kind", "Kind answered", base.HEX, kind_names),
    straggler_round = ProtoField.uint32("thc.straggler.round", "Round of the slot"),
    nudge_kind = ProtoField.uint8("thc.nudge.kind", "Kind passed on", base.HEX, kind_names),
    nudge_seen = ProtoField.uint64("thc.nudge.seen", "Seen", base.HEX),
    -- P22 to P25
    join_nonce = ProtoField.uint64("thc.join.nonce", "Nonce", base.HEX),
    join_session = ProtoField.uint32("thc.join.session", "Session cookie before", base.HEX),
    join_ends = ProtoField.uint32("thc.join.ends", "1: that session is over, for a member of this rack has restarted"),
    join_fingerprint = ProtoField.uint64("thc.join.fingerprint", "Fingerprint of what it was welcomed with", base.HEX),
    join_definitions = ProtoField.uint64("thc.join.definitions", "Digest of what it computes", base.HEX),
    leave_nonce = ProtoField.uint64("thc.leave.nonce", "Nonce", base.HEX),
    pending_joined = ProtoField.uint64("thc.pending.joined", "Joined", base.HEX),
    refused_reason = ProtoField.uint8("thc.refused.reason", "Reason", base.DEC, reasons),
    refused_worker = ProtoField.uint8("thc.refused.worker", "Worker concerned"),
    welcome_session = ProtoField.uint32("thc.welcome.session", "Session cookie", base.HEX),
    welcome_data_slots = ProtoField.uint32("thc.welcome.data_slots", "Data slots"),
    welcome_norm_slots = ProtoField.uint32("thc.welcome.norm_slots", "Norm slots"),
    welcome_quorum = ProtoField.uint8("thc.welcome.quorum", "Quorum"),
    welcome_lane = ProtoField.uint8("thc.welcome.lane", "Bits of a sum"),
    welcome_policy = ProtoField.uint8("thc.welcome.policy", "Policy", base.DEC, policies),
    welcome_shards = ProtoField.uint8("thc.welcome.shards", "Shards"),
    welcome_deadline = ProtoField.uint32("thc.welcome.deadline", "Best-effort deadline (microseconds)"),
    welcome_table = ProtoField.uint8("thc.welcome.table", "Lookup table"),
    welcome_bits = ProtoField.uint8("thc.welcome.bits", "Bit budget b"),
    welcome_granularity = ProtoField.uint16("thc.welcome.granularity", "Granularity g"),
    welcome_fraction = ProtoField.double("thc.welcome.fraction", "Fraction p"),
    welcome_values = ProtoField.bytes("thc.welcome.values", "Table values", base.SPACE),
    welcome_seed = ProtoField.uint64("thc.welcome.seed", "Job seed", base.HEX),
    welcome_nonce = ProtoField.uint64("thc.welcome.nonce", "Nonce answered", base.HEX),
    welcome_t_p = ProtoField.double("thc.welcome.t_p", "t_p"),
    welcome_fingerprint = ProtoField.uint64("thc.welcome.fingerprint", "Fingerprint", base.HEX),
    welcome_block = ProtoField.uint8("thc.welcome.block", "Block size (log2 of coordinates)"),
    welcome_workers = ProtoField.uint8("thc.welcome.workers", "Workers"),
    welcome_width = ProtoField.uint8("thc.welcome.width", "Bits per index"),
    welcome_credit = ProtoField.uint32("thc.welcome.credit", "Credit (packets, 0 is no bound)"),
    welcome_features = ProtoField.uint32("thc.welcome.features", "Features needed", base.HEX),
    welcome_shares = ProtoField.uint8("thc.welcome.shares", "Shares (0: one server)"),
    welcome_share = ProtoField.ipv4("thc.welcome.share", "Share's address"),
    welcome_share_v6 = ProtoField.ipv6("thc.welcome.share_v6", "Share's address"),
    welcome_share_port = ProtoField.uint16("thc.welcome.share.port", "Share's base port"),
    welcome_tables = ProtoField.uint8("thc.welcome.tables", "Further lookup tables"),
    welcome_marks = ProtoField.bool("thc.welcome.marks", "Marks are told", 8, nil, 0x01, "Workers send data as ECN-capable (P46)"),
    welcome_racks = ProtoField.uint8("thc.welcome.racks", "Racks"),
    welcome_rack = ProtoField.uint8("thc.welcome.rack", "Rack (255: this is the root)"),
    welcome_all_workers = ProtoField.uint16("thc.welcome.all_workers", "Workers of all racks"),
    welcome_all_quorum = ProtoField.uint16("thc.welcome.all_quorum", "Quorum of all racks"),
    welcome_first = ProtoField.uint16("thc.welcome.first", "Rank of the rack's worker 0"),
    welcome_layout = ProtoField.uint64("thc.welcome.layout", "Digest of the racks' sizes", base.HEX),
    ask_nonce = ProtoField.uint64("thc.ask.nonce", "Nonce asked for", base.HEX),
    -- Fields that follow from several packets, which the display shows in brackets.
    seq = ProtoField.uint64("thc.seq", "Sequence number", base.DEC, nil, nil, "round x slots + slot (P8), once WELCOME was seen"),
    members = ProtoField.string("thc.bitmap", "Workers"),
    retransmission = ProtoField.bool("thc.retransmission", "Sent again"),
    first_frame = ProtoField.framenum("thc.first_frame", "First sent in", base.NONE, frametype.NONE),
    response_in = ProtoField.framenum("thc.response_in", "Answered in", base.NONE, frametype.RESPONSE),
    response_to = ProtoField.framenum("thc.response_to", "Answer to", base.NONE, frametype.REQUEST),
    repeated_result = ProtoField.bool("thc.repeated_result", "Result sent again"),
    time = ProtoField.double("thc.time", "Seconds since first sent"),
}
for _, field in pairs(f) do
    table.insert(thc.fields, field)
end

local e = {
    short = ProtoExpert.new("thc.short", "Shorter than the header (P1)", expert.group.MALFORMED, expert.severity.ERROR),
    version = ProtoExpert.new("thc.bad_version", "Unknown version (P1)", expert.group.MALFORMED, expert.severity.ERROR),
    kind = ProtoExpert.new("thc.bad_kind", "Unknown kind (P2)", expert.group.MALFORMED, expert.severity.ERROR),
    length = ProtoExpert.new("thc.bad_length", "Length is not the kind's (P2)", expert.group.MALFORMED, expert.severity.ERROR),
    again = ProtoExpert.new("thc.sent_again", "Sent again (P20)", expert.group.SEQUENCE, expert.severity.NOTE),
    result_again = ProtoExpert.new("thc.result_again", "Result sent again (P12)", expert.group.SEQUENCE, expert.severity.NOTE),
    nudge = ProtoExpert.new("thc.nudged", "A worker waits for this slot (P17)", expert.group.SEQUENCE, expert.severity.WARN),
    straggler = ProtoExpert.new("thc.straggles", "The round is over (P15)", expert.group.SEQUENCE, expert.severity.WARN),
    mismatch = ProtoExpert.new("thc.mismatches", "Workers called different all-reduces (P14)", expert.group.RESPONSE_CODE, expert.severity.ERROR),
    refused = ProtoExpert.new("thc.is_refused", "The worker is refused (P24)", expert.group.RESPONSE_CODE, expert.severity.WARN),
    norm = ProtoExpert.new("thc.bad_norm", "A norm that no worker may send (P5)", expert.group.MALFORMED, expert.severity.ERROR),
    nan = ProtoExpert.new("thc.not_finite", "A gradient is not finite (P19)", expert.group.RESPONSE_CODE, expert.severity.WARN),
}
for _, info in pairs(e) do
    table.insert(thc.experts, info)
end

-- Port 9000 is the default of thc-ps, and its shards have the ports after it (P21).
thc.prefs.ports = Pref.range("UDP ports", "9000-9063", "Ports of parameter servers", 65535)
thc.prefs.heuristic = Pref.bool("Recognise packets on other ports", true, "By version, kind and the length that belongs to the kind")
thc.prefs.sequences = Pref.bool("Follow sequences", true, "Mark what is sent again and which packet answers which")

-- The results of the first pass, which a new file clears.
local slots -- by session: how many data and norm slots (P23)
local sent -- by packet: the frame in which it was sent first, and its time
local facts -- by frame and offset: what to show about a packet

function thc.init()
    slots, sent, facts = {}, {}, {}
end

local function bitmap(value)
    local members = {}
    for worker = 0, 63 do
        local half = worker < 32 and value:lower() or value:higher()
        if bit.band(half, bit.lshift(1, worker % 32)) ~= 0 then
            members[#members + 1] = tostring(worker)
        end
    end
    return #members > 0 and table.concat(members, ", ") or "none"
end

local function add_bitmap(tree, field, tvb)
    tree:add(field, tvb):append_text(" (workers " .. bitmap(tvb:uint64()) .. ")")
    tree:add(f.members, tvb, bitmap(tvb:uint64())):set_generated()
end

local function add_worker(tree, field, tvb)
    local item = tree:add(field, tvb)
    if tvb:uint() == NOBODY then
        item:append_text(" (none)")
    end
end

-- P3
local function norm(tvb, tree)
    local bits = tvb(4, 4):uint()
    tree:add(f.norm_tag, tvb(0, 4))
    tree:add(f.norm_value, tvb(4, 4))
    local nan = bits >= 0x7fc00000 and bits <= 0x7fc000ff -- P19: the worker's number is in the low byte
    if nan then
        tree:add(f.norm_nan, tvb(7, 1)):set_generated()
        tree:add_proto_expert_info(e.nan)
    elseif bits ~= 0 and (bits < 0x0d800000 or bits > 0x7c800000) then
        tree:add_proto_expert_info(e.norm)
    end
    tree:add(f.norm_length, tvb(8, 4))
    tree:add(f.norm_call, tvb(12, 2))
    tree:add(f.norm_table, tvb(14, 1))
    tree:add(f.norm_mode, tvb(15, 1))
    tree:add(f.norm_key, tvb(16, 4))
    return string.format("call %d, %d coordinates, %s", tvb(12, 2):uint(), tvb(8, 4):uint(),
        nan and "not finite" or string.format("%g", tvb(4, 4):float()))
end

-- P23
-- The bytes of a WELCOME's list of shares, padded to a multiple of 8, of its rows, and of their addresses.
local function list_of_shares(tvb)
    local ipv6 = bit.band(tvb(88, 4):uint(), 32) ~= 0
    local row_len = ipv6 and 18 or 8
    return 8 * math.ceil(tvb(92, 1):uint() * row_len / 8), row_len, ipv6 and 16 or 4
end

-- A further lookup table, with the same fields as the first one.
local function further_table(tvb, tree)
    tree:add(f.welcome_table, tvb(0, 1))
    tree:add(f.welcome_bits, tvb(1, 1))
    tree:add(f.welcome_width, tvb(2, 1))
    tree:add(f.welcome_lane, tvb(3, 1))
    tree:add(f.welcome_granularity, tvb(4, 2))
    tree:add(f.welcome_fraction, tvb(8, 8))
    tree:add(f.welcome_t_p, tvb(16, 8))
    tree:add(f.welcome_values, tvb(24, 16))
end

local function welcome(tvb, tree, header)
    tree:add(f.welcome_session, tvb(0, 4))
    tree:add(f.welcome_data_slots, tvb(4, 4))
    tree:add(f.welcome_norm_slots, tvb(8, 4))
    tree:add(f.welcome_quorum, tvb(12, 1))
    tree:add(f.welcome_lane, tvb(13, 1))
    tree:add(f.welcome_policy, tvb(14, 1))
    tree:add(f.welcome_shards, tvb(15, 1))
    tree:add(f.welcome_deadline, tvb(16, 4))
    tree:add(f.welcome_table, tvb(20, 1))
    tree:add(f.welcome_bits, tvb(21, 1))
    tree:add(f.welcome_granularity, tvb(22, 2))
    tree:add(f.welcome_fraction, tvb(24, 8))
    tree:add(f.welcome_values, tvb(32, 16))
    tree:add(f.welcome_seed, tvb(48, 8))
    tree:add(f.welcome_nonce, tvb(56, 8))
    tree:add(f.welcome_t_p, tvb(64, 8))
    tree:add(f.welcome_fingerprint, tvb(72, 8))
    tree:add(f.welcome_block, tvb(80, 1))
    tree:add(f.welcome_workers, tvb(82, 1))
    tree:add(f.welcome_width, tvb(83, 1))
    tree:add(f.welcome_credit, tvb(84, 4))
    tree:add(f.welcome_features, tvb(88, 4))
    if bit.band(tvb(88, 4):uint(), 2) ~= 0 then
        tree:add(f.welcome_racks, tvb(94, 1))
        tree:add(f.welcome_rack, tvb(95, 1))
        tree:add(f.welcome_all_workers, tvb(96, 2))
        tree:add(f.welcome_all_quorum, tvb(98, 2))
        tree:add(f.welcome_first, tvb(100, 2))
        tree:add(f.welcome_layout, tvb(102, 8))
    end
    tree:add(f.welcome_marks, tvb(118, 1))
    tree:add(f.welcome_shares, tvb(92, 1))
    local list_len, row_len, ip_len = list_of_shares(tvb)
    local ipv6 = ip_len == 16
    for row = 0, tvb(92, 1):uint() - 1 do
        local at = 128 + row_len * row
        tree:add(ipv6 and f.welcome_share_v6 or f.welcome_share, tvb(at, ip_len))
        tree:add(f.welcome_share_port, tvb(at + ip_len, 2))
    end
    local tables, rows = tvb(93, 1):uint(), 128 + list_len
    tree:add(f.welcome_tables, tvb(93, 1))
    for row = 0, tables - 1 do
        further_table(tvb(rows + 40 * row, 40), tree)
    end
    slots[header.job .. "/" .. tvb(0, 4):uint()] = { data = tvb(4, 4):uint(), norm = tvb(8, 4):uint() }
    return string.format("session 0x%08x, quorum %d, b=%d g=%d, %d slots", tvb(0, 4):uint(), tvb(12, 1):uint(),
        tvb(21, 1):uint(), tvb(22, 2):uint(), tvb(4, 4):uint())
end

-- The payloads by kind. Each function returns the text of the info column.
local payloads = {
    [0x01] = norm,
    [0x11] = norm,
    [0x02] = function(tvb, tree)
        tree:add(f.indices, tvb)
    end,
    [0x12] = function(tvb, tree)
        tree:add(f.sums, tvb)
    end,
    [0x03] = function(tvb, tree)
        tree:add(f.integers, tvb)
    end,
    [0x13] = function(tvb, tree)
        tree:add(f.integers, tvb)
    end,
    [0x14] = function(tvb, tree)
        tree:add(f.straggler_kind, tvb(0, 1))
        tree:add(f.straggler_round, tvb(4, 4))
        tree:add_proto_expert_info(e.straggler)
        return "the slot is in round " .. tvb(4, 4):uint()
    end,
    [0x15] = function(tvb, tree)
        local ours = norm(tvb(0, 20), tree:add(thc, tvb(0, 20), "The slot's call"))
        local theirs = norm(tvb(20, 20), tree:add(thc, tvb(20, 20), "The refused call"))
        tree:add_proto_expert_info(e.mismatch)
        return ours .. " / " .. theirs
    end,
    [0x16] = function(tvb, tree)
        tree:add(f.nudge_kind, tvb(0, 1))
        add_bitmap(tree, f.nudge_seen, tvb(4, 8))
        tree:add_proto_expert_info(e.nudge)
        return "seen: " .. bitmap(tvb(4, 8):uint64())
    end,
    [0x21] = function(tvb, tree)
        tree:add(f.join_nonce, tvb(0, 8))
        tree:add(f.join_session, tvb(8, 4))
        tree:add(f.join_ends, tvb(12, 4))
        tree:add(f.join_fingerprint, tvb(16, 8))
        tree:add(f.join_definitions, tvb(24, 8))
    end,
    [0x22] = function(tvb, tree)
        tree:add(f.leave_nonce, tvb(0, 8))
    end,
    [0x31] = welcome,
    [0x32] = function(tvb, tree)
        add_bitmap(tree, f.pending_joined, tvb(0, 8))
        return "joined: " .. bitmap(tvb(0, 8):uint64())
    end,
    [0x33] = function(tvb, tree)
        tree:add(f.refused_reason, tvb(0, 1))
        add_worker(tree, f.refused_worker, tvb(1, 1))
        tree:add_proto_expert_info(e.refused)
        return reasons[tvb(0, 1):uint()] or "unknown reason"
    end,
    [0x34] = function() end,
    [0x35] = welcome,
    [0x36] = function(tvb, tree)
        tree:add(f.ask_nonce, tvb(0, 8))
    end,
}

-- Whether a packet has the length of its kind. WELCOME's fixed part has the counts of the lists that follow it (P23).
local function fits(kind, tvb)
    local length, more = tvb:reported_len() - HEADER, 0
    if kind.lists and tvb:captured_len() > HEADER + 93 then
        more = list_of_shares(tvb(HEADER)) + 40 * tvb(HEADER + 93, 1):uint()
    end
    for _, right in ipairs(kind.lengths) do
        if length == right + more then
            return true
        end
    end
    return false
end

-- The length of each packet of a datagram, or nil if none is right. The kernel hands packets of one kind and length to a network
-- card, and from it to a program, as one datagram (UDP_SEGMENT, UDP_GRO), and this is what a capture on that host has.
local function packet_length(tvb)
    local captured = tvb:captured_len()
    local kind = captured >= HEADER and tvb(0, 1):uint() == VERSION and kinds[tvb(1, 1):uint()]
    if not kind then
        return nil
    end
    local length = tvb:reported_len()
    if fits(kind, tvb) then
        return length
    end
    for _, payload in ipairs(kind.lengths) do
        local one = HEADER + payload
        -- Version and kind, job, cookie.
        if one < length and length % one == 0 and captured == length
            and tvb(0, 2):uint() == tvb(one, 2):uint() and tvb(4, 2):uint() == tvb(one + 4, 2):uint()
            and tvb(8, 4):uint() == tvb(one + 8, 4):uint() then
            return one
        end
    end
    return nil
end

-- Notes on the first pass which packet of a slot a packet repeats or answers. A worker is identified by its endpoint, since
-- results name no worker.
local function follow(header, kind, pinfo, place)
    local asked = kind.up and header.kind or kind.answers
    if not asked or asked >= 0x20 then
        return
    end
    local endpoint = kind.up and tostring(pinfo.src) .. ":" .. pinfo.src_port or tostring(pinfo.dst) .. ":" .. pinfo.dst_port
    local key = table.concat({ header.job, header.cookie, asked, header.round, header.slot, endpoint }, "/")
    local before = sent[key]
    local fact = {}
    if kind.up then
        if before then
            fact.first = before.frame
        else
            before = { frame = pinfo.number, time = tonumber(tostring(pinfo.rel_ts)) }
            sent[key] = before
        end
        fact.sent = before
    elseif before then
        fact.request = before.frame
        fact.time = tonumber(tostring(pinfo.rel_ts)) - before.time
        fact.again = before.response ~= nil
        before.response = before.response or pinfo.number
    end
    facts[place] = fact
end

local function show(fact, tvb, tree)
    local function add(field, value)
        tree:add(field, tvb(0, 0), value):set_generated()
    end
    if fact.first then
        add(f.retransmission, true)
        add(f.first_frame, fact.first)
        tree:add_proto_expert_info(e.again)
    end
    -- This is known only on the second pass, for which tshark needs -2.
    if fact.sent and fact.sent.response then
        add(f.response_in, fact.sent.response)
    end
    if fact.request then
        add(f.response_to, fact.request)
        add(f.time, fact.time)
    end
    if fact.again then
        add(f.repeated_result, true)
        tree:add_proto_expert_info(e.result_again)
    end
end

local function header_tree(tvb, tree)
    tree:add(f.version, tvb(0, 1))
    tree:add(f.kind, tvb(1, 1))
    local flags = tree:add(f.flags, tvb(2, 1))
    flags:add(f.flag_nudge, tvb(2, 1))
    flags:add(f.flag_root, tvb(2, 1))
    flags:add(f.flag_mark, tvb(2, 1))
    tree:add(f.workers, tvb(3, 1))
    tree:add(f.job, tvb(4, 2))
    add_worker(tree, f.worker, tvb(6, 1))
    tree:add(f.table, tvb(7, 1))
    tree:add(f.cookie, tvb(8, 4))
    tree:add(f.round, tvb(12, 4))
    tree:add(f.slot, tvb(16, 2))
    tree:add_le(f.count, tvb(18, 2))
end

local function summary(header, kind, said)
    local words = { kind.name, "job " .. header.job }
    if header.worker ~= NOBODY then
        words[#words + 1] = (header.root and "rack " or "worker ") .. header.worker
    end
    if header.kind < 0x20 then
        words[#words + 1] = "round " .. header.round .. " slot " .. header.slot
    end
    if kind.answers and not header.root then
        words[#words + 1] = header.count .. " of " .. header.workers
    elseif header.count > 0 then
        words[#words + 1] = header.count .. " workers"
    end
    if header.root then
        words[#words + 1] = "from the root"
    end
    if header.nudge then
        words[#words + 1] = "NUDGE"
    end
    words[#words + 1] = said
    return table.concat(words, ", ")
end

-- Shows the packet at an offset of its datagram, and returns the text for the column Info.
local function show_packet(tvb, pinfo, root, offset)
    local length = tvb:reported_len()
    local tree = root:add(thc, tvb())
    if tvb:captured_len() < HEADER then
        if length < HEADER then
            tree:add_proto_expert_info(e.short, "Packet of " .. length .. " bytes, the header has 20 (P1)")
        end
        return "too short"
    end
    header_tree(tvb, tree)
    local header = {
        kind = tvb(1, 1):uint(),
        nudge = bit.band(tvb(2, 1):uint(), 1) ~= 0,
        workers = tvb(3, 1):uint(),
        job = tvb(4, 2):uint(),
        worker = tvb(6, 1):uint(),
        cookie = tvb(8, 4):uint(),
        round = tvb(12, 4):uint(),
        slot = tvb(16, 2):uint(),
        root = bit.band(tvb(2, 1):uint(), 2) ~= 0,
        count = tvb(18, 2):le_uint(),
    }
    if tvb(0, 1):uint() ~= VERSION then
        tree:add_proto_expert_info(e.version)
        return "version " .. tvb(0, 1):uint()
    end
    local kind = kinds[header.kind]
    if not kind then
        tree:add_proto_expert_info(e.kind)
        return string.format("unknown kind 0x%02x", header.kind)
    end
    if not fits(kind, tvb) then
        local right = table.concat(kind.lengths, " or ")
        tree:add_proto_expert_info(e.length,
            string.format("%s with a payload of %d bytes, it has %s (P2)", kind.name, length - HEADER, right))
        return summary(header, kind, "bad length")
    end
    local said
    if tvb:captured_len() == length then
        -- An empty range has no tvb.
        said = payloads[header.kind](length > HEADER and tvb(HEADER) or nil, tree, header)
    end
    local session = slots[header.job .. "/" .. header.cookie]
    if session and header.kind < 0x20 then
        local about = header.kind
        if (about == 0x14 or about == 0x16) and length > HEADER then
            about = tvb(HEADER, 1):uint()
        end
        local norm_class = bit.band(about, 0x0f) == 1 or about == 0x15
        local size = norm_class and session.norm or session.data
        tree:add(f.seq, tvb(12, 6), UInt64.new(header.round) * UInt64.new(size) + UInt64.new(header.slot)):set_generated()
    end
    local place = pinfo.number .. "/" .. offset
    if thc.prefs.sequences and not pinfo.visited then
        follow(header, kind, pinfo, place)
    end
    local fact = facts[place]
    if fact then
        show(fact, tvb, tree)
        if fact.first or fact.again then
            said = (said and said .. ", " or "") .. "again"
        end
    end
    local text = summary(header, kind, said)
    tree:append_text(", " .. text)
    return text
end

function thc.dissector(tvb, pinfo, root)
    pinfo.cols.protocol = "THC"
    local length = tvb:reported_len()
    local one = packet_length(tvb) or length
    if one == length then
        pinfo.cols.info = show_packet(tvb, pinfo, root, 0)
        return tvb:captured_len()
    end
    local text = show_packet(tvb(0, one):tvb(), pinfo, root, 0)
    for offset = one, length - one, one do
        show_packet(tvb(offset, one):tvb(), pinfo, root, offset)
    end
    pinfo.cols.info = string.format("%s (and %d more)", text, length / one - 1)
    return tvb:captured_len()
end

-- No other protocol has this version, kind, matching length and a plausible number of workers by chance.
local function recognised(tvb, pinfo, root)
    if not thc.prefs.heuristic or not packet_length(tvb) then
        return false
    end
    local workers = tvb(3, 1):uint()
    local worker = tvb(6, 1):uint()
    local plausible = workers <= 64 and (worker < 64 or worker == NOBODY) and tvb(19, 1):uint() == 0
    if not plausible then
        return false
    end
    thc.dissector(tvb, pinfo, root)
    return true
end

local udp = DissectorTable.get("udp.port")
local registered = thc.prefs.ports
udp:add(registered, thc)
function thc.prefs_changed()
    if thc.prefs.ports ~= registered then
        udp:remove(registered, thc)
        registered = thc.prefs.ports
        udp:add(registered, thc)
    end
end
thc:register_heuristic("udp", recognised)
