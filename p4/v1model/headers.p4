// The words of a pass, and what a packet carries between passes. Everything else is in shared/headers.p4.
// The indices of one pass: those of one word of lanes in one field.
header indices_h {
    bit<16> i0; bit<16> i1; bit<16> i2; bit<16> i3; bit<16> i4; bit<16> i5; bit<16> i6; bit<16> i7;
    bit<16> i8; bit<16> i9; bit<16> i10; bit<16> i11; bit<16> i12; bit<16> i13; bit<16> i14; bit<16> i15;
    bit<16> i16; bit<16> i17; bit<16> i18; bit<16> i19; bit<16> i20; bit<16> i21; bit<16> i22; bit<16> i23;
    bit<16> i24; bit<16> i25; bit<16> i26; bit<16> i27; bit<16> i28; bit<16> i29; bit<16> i30; bit<16> i31;
}

// The words of one pass: a piece of RAW, or sums that go out.
header words_h {
    bit<32> w0; bit<32> w1; bit<32> w2; bit<32> w3; bit<32> w4; bit<32> w5; bit<32> w6; bit<32> w7;
    bit<32> w8; bit<32> w9; bit<32> w10; bit<32> w11; bit<32> w12; bit<32> w13; bit<32> w14; bit<32> w15;
    bit<32> w16; bit<32> w17; bit<32> w18; bit<32> w19; bit<32> w20; bit<32> w21; bit<32> w22; bit<32> w23;
    bit<32> w24; bit<32> w25; bit<32> w26; bit<32> w27; bit<32> w28; bit<32> w29; bit<32> w30; bit<32> w31;
}

// Sums of an earlier pass of the same packet, on their way out.
header done_h {
    bit<(WORDS * 32)> words;
}

// In front of a packet between two passes; it never leaves the switch.
header pass_h {
    // The pass that comes next, from 1 on.
    bit<8> number;
    // How many done_h follow the headers: `number`, or 0 once it is known that no RESULT can go out.
    bit<8> kept;
    // Every cell so far is complete.
    bit<1> complete;
    // This packet has completed one of the cells so far.
    bit<1> completes;
    // This packet has opened its round in the first cell.
    bit<1> opened;
    // The slot's mark, as the packet left it in the first cell (P46). Where that cell is complete, it is final.
    bit<1> mark;
    bit<4> unused;
    // What the RESULT's header says (P13): as of the packet that completed the first cell.
    bit<8> result_kind;
    bit<8> result_table;
    // Workers that are in every cell so far.
    bit<64> seen;
}
