//! Groups of coordinates that share words of the rounding stream, and how bytes move in vectors.

/// Coordinates that share 16 words: `crate::rounding` gives word j of a group to its coordinates j, j + 16, j + 32 and j + 48.
pub(super) const GROUP: usize = 64;

/// How a kernel finds the index of a cell of the grid: in a few vectors, in more of them, or not at all,
/// where every cell has its own. Each instruction set defines which tables are small.
pub(super) const SMALL: u8 = 0;
pub(super) const LARGE: u8 = 1;
pub(super) const COMPLETE: u8 = 2;

/// A run of coordinates, where their indices go, and the number of the first.
type Run<'a> = (&'a mut [f32], &'a mut [u8], u64);

/// Cuts coordinates numbered from `first` into those before the first whole group, whole groups, and the rest. `per_byte`
/// indices go into a byte of `out`; if that leaves the first whole group in the middle of a byte, all belong to the rest.
pub(super) fn split<'a>(x: &'a mut [f32], out: &'a mut [u8], per_byte: usize, first: u64) -> [Run<'a>; 3] {
    let before = (first.wrapping_neg() % GROUP as u64) as usize;
    let (head, body) = if before.is_multiple_of(per_byte) && before <= x.len() {
        (before, (x.len() - before) / GROUP * GROUP)
    } else {
        (0, 0)
    };
    let (x_head, x) = x.split_at_mut(head);
    let (x_body, x_tail) = x.split_at_mut(body);
    let (out_head, out) = out.split_at_mut(head / per_byte);
    let (out_body, out_tail) = out.split_at_mut(body / per_byte);
    let at = first.wrapping_add(head as u64);
    [(x_head, out_head, first), (x_body, out_body, at), (x_tail, out_tail, at.wrapping_add(body as u64))]
}

/// Number of the word of the rounding stream that the group from coordinate `at` begins with, modulo 2^32.
pub(super) fn word(at: u64) -> u32 {
    (at / GROUP as u64 * 16) as u32
}

/// The place from which each byte of four words comes if the words are rotated right by `bytes` bytes, and an index out of
/// range, which stands for zero, for the highest byte: a draw does not need it.
pub(super) const fn drawn(bytes: usize) -> [u8; 16] {
    let (mut from, mut i) = ([0; 16], 0);
    while i < 16 {
        from[i] = if i % 4 == 3 { 0x80 } else { (i / 4 * 4 + (i + bytes) % 4) as u8 };
        i += 1;
    }
    from
}

/// The place from which each byte comes if the bytes of every number of 16 bits change places.
#[cfg(target_arch = "x86_64")]
pub(super) const SWAPPED: [u8; 16] = [1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14];
