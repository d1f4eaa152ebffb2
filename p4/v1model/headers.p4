// The words of a pass, and what a packet carries between passes. Everything else is in shared/headers.p4.
#ifndef THC_V1MODEL_HEADERS
#define THC_V1MODEL_HEADERS

// The indices of one pass: those of one word of lanes in one field.
#if LANE_BITS == 8
#define INDICES bit<16>
#else
#define INDICES bit<8>
#endif
header indices_h {
    INDICES i0; INDICES i1; INDICES i2; INDICES i3; INDICES i4; INDICES i5; INDICES i6; INDICES i7;
    INDICES i8; INDICES i9; INDICES i10; INDICES i11; INDICES i12; INDICES i13; INDICES i14; INDICES i15;
    INDICES i16; INDICES i17; INDICES i18; INDICES i19; INDICES i20; INDICES i21; INDICES i22; INDICES i23;
    INDICES i24; INDICES i25; INDICES i26; INDICES i27; INDICES i28; INDICES i29; INDICES i30; INDICES i31;
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

#endif
