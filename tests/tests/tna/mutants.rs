//! Programs with a mistake in them: the traces notice each.

use super::{Case, TOFINO, TOFINO2, strays, trace};

/// A piece of the program for Tofino 2, and what stands there by mistake.
const MISTAKES: [(&str, &str); 29] = [
    // Rounds: the sign of a difference, the next one, an older one, a cell of another epoch.
    ("> 32s0", "< 32s0"),
    ("(32w0, 32w1, default) : cells_newer_0();", "(32w0, 32w1, default) : cells_same_0();"),
    ("(32w0, 32w0x80000000 &&& 32w0x80000000, default) : cells_older_0();", ""),
    ("value.second != hdr.trip.epoch || (int", "false || (int"),
    // Workers: two that are one, one that is added twice, one that is not counted.
    ("8w1 : membership_set_me_0(32w2, ", "8w1 : membership_set_me_0(32w1, "),
    ("(8w2, 2w2, 1w0, 8w2, 32w4 &&& 32w4, default) : cells_see_again_0();", ""),
    ("value.missing = value.missing |-| 16w1;", "value.missing = value.missing |-| 16w0;"),
    ("value.first = value.first | hdr.trip.me_low;", "value.first = hdr.trip.me_low;"),
    // Words: one that is not added, not looked up, in the wrong half, not kept; the maximum.
    ("value.second = value.second + hdr.more.w17;", "value.second = value.second;"),
    ("lookup_lookup_b30.apply();", ""),
    ("hdr.more.w12[31:16] = ", "hdr.more.w12[15:0] = "),
    ("max<bit<32>>(value.first, hdr.first.w0)", "hdr.first.w0"),
    // Answers.
    ("(8w2, false, 8w7, default, default, 8w1, default, default, default) : first_collected();", ""),
    ("8w4 &&& 8w4, default) : first_half_collected();", "8w4 &&& 8w4, default) : first_collected();"),
    ("hdr.trip.completes = hdr.trip.completes | meta.completes;", "hdr.trip.completes = meta.completes;"),
    ("(true, 8w8, true, default, default, default, default, default) : answers_out_mismatch_0();", ""),
    ("hdr.ipv4.ttl, hdr.ipv4.protocol, hdr.ipv4.src", "hdr.ipv4.protocol, hdr.ipv4.ttl, hdr.ipv4.src"),
    // Marks: one that is dropped, that a repetition sets, or a late packet, that outlives its round, that is told of what is not
    // complete; a result that no queue may mark.
    ("hdr.thc.kind = 8w0x16;\n        hdr.thc.flags = 8w0;", "hdr.thc.kind = 8w0x16;"),
    ("value = 8w4;", "value = 8w0;"),
    ("(8w2, 8w0, 2w2, 1w0, default, 8w16 &&& 8w16)", "(8w2, 8w0, 2w2, default, default, 8w16 &&& 8w16)"),
    ("(8w2, 8w0, 2w2, default, 16w0, default) : cells_look_at_mark_0();", ""),
    (
        "(8w2, 8w0, 2w1, default, default, default) : cells_unmarked_0();",
        "(8w2, 8w0, 2w1, default, default, default) : cells_look_at_mark_0();",
    ),
    ("result_to_members_0(8w2, ", "result_to_members_0(8w0, "),
    // Queues of the chip that mark: at another length, in place of what a host has said, never.
    ("set_depth(32w466)", "set_depth(32w467)"),
    ("hdr.trip.flags = hdr.trip.flags | 8w16;", "hdr.trip.flags = hdr.trip.flags ^ 8w16;"),
    ("if (meta.below == 32w0)", "if (meta.depth == 32w0)"),
    // What is let in; an index of counters; what a place holds that nothing was written to.
    ("meta.data_room = data_slots |-| hdr.thc.slot;", "meta.data_room = data_slots;"),
    ("meta.event_index = hdr.trip.who >> 1;", "meta.event_index = hdr.trip.who;"),
    ("meta.refused = 1w0;", ""),
];

/// Runs a program with a mistake: somebody must notice.
fn expect_notice(case: Case, right: &str, wrong: &str) {
    noticed_by(case, right, wrong, |program| trace::trace(case, program, 4, trace::PACKETS).is_ok());
}

/// The same, where `unnoticed` says that all seems right.
fn noticed_by(case: Case, right: &str, wrong: &str, unnoticed: impl Fn(&str) -> bool) {
    let program = case.program();
    assert!(program.contains(right), "the program has no {right}");
    let program = program.replace(right, wrong);
    // It is a program still.
    thc_tests::p4::check(&program);
    // A packet may also do what a chip cannot do.
    let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| unnoticed(&program)));
    assert!(!matches!(ended, Ok(true)), "nobody notices {wrong:?} in place of {right:?}");
}

#[test]
fn mistakes_are_noticed() {
    MISTAKES.iter().for_each(|(right, wrong)| expect_notice(TOFINO2, right, wrong));
}

/// The words of a chip whose registers have one each, and its epochs.
#[test]
fn mistakes_are_noticed_on_tofino() {
    for (right, wrong) in [
        ("value = value + hdr.more.w15;", "value = hdr.more.w15;"),
        (
            "            old = value;\n            value = hdr.trip.epoch;",
            "            value = hdr.trip.epoch;\n            old = value;",
        ),
        ("cells_open_round.execute(hdr.trip.cell);", ""),
        ("(1w1, 16w1) : cells_keep_head_0();", ""),
    ] {
        expect_notice(TOFINO, right, wrong);
    }
}

/// Ports: programs that believe any port's packet to come from a pass, that let a host's in by a port of passes, or to the control
/// plane, and one that believes no port.
#[test]
fn mistakes_about_ports_are_noticed() {
    let line = |port: &str, trip: bool, does: &str| {
        format!("({port}, {trip}{}) : membership_{does};", ", default".repeat(24))
    };
    let host = line("1w1", false, "refuse_carrier_0(4w13)");
    let pass = |does: &str| line("1w0", true, does);
    let refused = pass("refuse_carrier_0(4w13)");
    for (right, wrong) in
        [(&*refused, &*pass("back_0()")), (&refused, ""), (&host, ""), ("meta.own_port == 1w0 && ", "")]
    {
        noticed_by(TOFINO2, right, wrong, |program| strays::strays(TOFINO2, program).is_ok());
    }
    expect_notice(TOFINO2, "meta.own_port = 1w1;", "");
}
