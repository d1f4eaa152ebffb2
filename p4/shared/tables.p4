// Tables that the control plane writes, once for every architecture: names, keys, actions with their parameters, sizes. What an
// action does with them is the architecture's: the arguments of these macros are the actions' bodies. NAMED says by which name the
// control plane knows what follows, where an architecture has no control's path in front of it.
// What rows mean: docs/switch.md.
// Of tables whose key is all that a row says, or that have rows for some keys only.
#define OR_NOTHING(does) \
        actions = { does; @defaultonly NoAction; } \
        const default_action = NoAction();

// The aggregator's own addresses.
#define TABLE_OWN_ADDRESS(ours) \
    NAMED(".set_ours") \
    action set_ours() { ours } \
    NAMED(".own_address") \
    table own_address { \
        key = { \
            hdr.ethernet.dst: exact @name("mac"); \
            hdr.ipv4.dst: exact @name("address"); \
        } \
        OR_NOTHING(set_ours) \
        size = 4; \
    }

// ARP for the aggregator's own address; `back` sends a frame to where it came from.
#define TABLE_OWN_ARP(back) \
    NAMED(".answer_arp") \
    action answer_arp(mac_t mac) { \
        hdr.ethernet.dst = hdr.ethernet.src; \
        hdr.ethernet.src = mac; \
        hdr.arp.operation = ARP_REPLY; \
        hdr.arp.target_mac = hdr.arp.sender_mac; \
        ipv4_addr_t asked = hdr.arp.target_ip; \
        hdr.arp.target_ip = hdr.arp.sender_ip; \
        hdr.arp.sender_mac = mac; \
        hdr.arp.sender_ip = asked; \
        back \
    } \
    NAMED(".own_arp") \
    table own_arp { \
        key = { hdr.arp.target_ip: exact @name("address"); } \
        OR_NOTHING(answer_arp) \
        size = 4; \
    }

// By destination MAC, what is not for the aggregator. The controller sets the default to `flood` with the group of all ports.
#define TABLE_STATIONS(to_port, to_group, to_nobody) \
    NAMED(".set_port") \
    action set_port(PortId_t port) { to_port } \
    NAMED(".flood") \
    action flood(bit<16> group) { to_group } \
    NAMED(".drop") \
    action drop() { to_nobody } \
    NAMED(".stations") \
    table stations { \
        key = { hdr.ethernet.dst: exact @name("mac"); } \
        actions = { set_port; flood; drop; } \
        default_action = drop(); \
        size = MAX_STATIONS; \
    }

// Kinds that the control plane answers, as they are, through the port where it is (P2). Without an entry they are dropped as bad kind.
#define TABLE_CONTROL_PLANE(away) \
    NAMED(".to_control") \
    action to_control(PortId_t port) { away } \
    NAMED(".control_plane") \
    table control_plane { \
        key = { hdr.thc.kind: exact @name("kind"); } \
        OR_NOTHING(to_control) \
        size = 16; \
    }

#define TABLE_JOBS(known) \
    NAMED(".set_job") \
    action set_job( \
        bit<JOB_BITS> index, \
        bit<32> cookie, \
        bit<32> epoch, \
        bit<8> workers, \
        bit<QUORUM_BITS> quorum, \
        bit<8> skip, \
        bit<PLACE_BITS> data_base, \
        bit<PLACE_BITS> data_slots, \
        bit<PLACE_BITS> norm_base, \
        bit<PLACE_BITS> norm_slots, \
        bit<16> group) \
    { known } \
    NAMED(".jobs") \
    table jobs { \
        key = { hdr.thc.job: exact @name("job"); } \
        OR_NOTHING(set_job) \
        size = MAX_JOBS; \
    }

#define TABLE_MEMBERS(known) \
    NAMED(".set_member") \
    action set_member(bit<16> ingress_port, ipv4_addr_t address, bit<16> udp_port) { known } \
    NAMED(".members") \
    table members { \
        key = { \
            hdr.thc.job: exact @name("job"); \
            hdr.thc.worker: exact @name("worker"); \
        } \
        OR_NOTHING(set_member) \
        size = MAX_MEMBERS; \
    }

// Which lookup tables a job may use: the controller has checked n·g against the lanes (P6). LOOKUP_PLACE: what a program that
// keeps lookup tables by numbers of its own must know of this one.
#define TABLE_JOB_TABLES(annotation, known) \
    NAMED(".allow_table") \
    action allow_table(LOOKUP_PLACE) { known } \
    annotation \
    NAMED(".job_tables") \
    table job_tables { \
        key = { \
            hdr.thc.job: exact @name("job"); \
            hdr.thc.table_id: exact @name("table"); \
        } \
        OR_NOTHING(allow_table) \
        size = MAX_JOB_TABLES; \
    }
// The forms that the program does, width/lane: an annotation of the table that says what an index stands for.
#define FORMS @forms("2/4 4/8 8/16")

// P34: a job in which the switch is a rack: its number, how many there are, and through which port the root is reached.
#define TABLE_RACKS(known) \
    NAMED(".set_rack") \
    action set_rack(bit<8> rack, bit<8> racks, PortId_t port) { known } \
    NAMED(".racks") \
    table racks { \
        key = { hdr.thc.job: exact @name("job"); } \
        OR_NOTHING(set_rack) \
        size = MAX_JOBS; \
    }

// The root's port for the slots of a block (P21), and its number in `addresses`, which no worker has.
#define TABLE_ROOTS(known) \
    NAMED(".set_root") \
    action set_root(bit<8> receiver, ipv4_addr_t address, bit<16> udp_port) { known } \
    NAMED(".roots") \
    table roots { \
        key = { \
            hdr.thc.job: exact @name("job"); \
            hdr.thc.slot[15:BLOCK_BITS]: exact @name("block"); \
        } \
        OR_NOTHING(set_root) \
        size = MAX_ROOTS; \
    }

// Where a member or the root is reached. A multicast group's replica has the worker's number as its instance; for others a
// packet is dropped.
#define TABLE_ADDRESSES(job, to, to_nobody) \
    NAMED(".set_address") \
    action set_address(mac_t mac, ipv4_addr_t address, bit<16> udp_port) { \
        hdr.ethernet.dst = mac; \
        hdr.ipv4.dst = address; \
        hdr.udp.dst_port = udp_port; \
    } \
    NAMED(".unknown_member") \
    action unknown_member() { to_nobody } \
    NAMED(".addresses") \
    table addresses { \
        key = { \
            job: exact @name("job"); \
            to: exact @name("worker"); \
        } \
        actions = { set_address; @defaultonly unknown_member; } \
        const default_action = unknown_member(); \
        size = MAX_MEMBERS; \
    }
