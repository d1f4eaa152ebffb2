//! Indices and sums as they are on the wire: most significant bit first, big endian.

use crate::arch;
use crate::error::CodecError;
use crate::isa::Isa;

/// Bytes that `count` indices of `bits` bits take.
#[must_use]
pub const fn packed_len(bits: u8, count: usize) -> usize {
    (count * bits as usize).div_ceil(8)
}

fn check_bits(bits: u8) -> Result<(), CodecError> {
    if matches!(bits, 1..=4 | 8) {
        Ok(())
    } else {
        Err(CodecError::Bits { bits, supported: "1, 2, 3, 4 or 8" })
    }
}

/// Packs indices of 1, 2, 3, 4 or 8 bits, one per byte in `indices`, the first index in the most
/// significant bits of the first byte. Unused bits of the last byte are 0; bits of an index above
/// its width are ignored. `out` must have [`packed_len`] bytes.
pub fn pack(bits: u8, indices: &[u8], out: &mut [u8]) -> Result<(), CodecError> {
    check_bits(bits)?;
    CodecError::check_len("packed indices", packed_len(bits, indices.len()), out.len())?;
    match bits {
        8 => out.copy_from_slice(indices),
        3 => pack3(indices, out),
        2 => pack_within_bytes::<4>(indices, out),
        1 => pack_within_bytes::<8>(indices, out),
        _ => pack_within_bytes::<2>(indices, out),
    }
    Ok(())
}

/// Indices whose width divides a byte, `PER` of them in each.
fn pack_within_bytes<const PER: usize>(indices: &[u8], out: &mut [u8]) {
    let bits = 8 / PER;
    let mask = (1 << bits) - 1;
    for (group, out) in indices.chunks(PER).zip(out) {
        *out = group.iter().enumerate().fold(0, |byte, (i, z)| byte | (z & mask) << (8 - bits * (i + 1)));
    }
}

/// Eight 3-bit indices make three bytes.
fn pack3(indices: &[u8], out: &mut [u8]) {
    for (group, out) in indices.chunks(8).zip(out.chunks_mut(3)) {
        let word =
            group.iter().enumerate().fold(0_u32, |word, (i, z)| word | u32::from(z & 7) << (29 - 3 * i));
        let len = out.len();
        out.copy_from_slice(&word.to_be_bytes()[..len]);
    }
}

/// Undoes [`pack`]: one index per byte of `indices`. `packed` must have [`packed_len`] bytes.
pub fn unpack(bits: u8, packed: &[u8], indices: &mut [u8]) -> Result<(), CodecError> {
    check_bits(bits)?;
    CodecError::check_len("packed indices", packed_len(bits, indices.len()), packed.len())?;
    match bits {
        8 => indices.copy_from_slice(packed),
        3 => unpack3(packed, indices),
        2 => unpack_within_bytes::<4>(packed, indices),
        1 => unpack_within_bytes::<8>(packed, indices),
        _ => unpack_within_bytes::<2>(packed, indices),
    }
    Ok(())
}

fn unpack_within_bytes<const PER: usize>(packed: &[u8], indices: &mut [u8]) {
    let bits = 8 / PER;
    let mask = (1 << bits) - 1;
    for (group, byte) in indices.chunks_mut(PER).zip(packed) {
        for (i, z) in group.iter_mut().enumerate() {
            *z = byte >> (8 - bits * (i + 1)) & mask;
        }
    }
}

fn unpack3(packed: &[u8], indices: &mut [u8]) {
    for (group, bytes) in indices.chunks_mut(8).zip(packed.chunks(3)) {
        let mut word = [0; 4];
        word[..bytes.len()].copy_from_slice(bytes);
        let word = u32::from_be_bytes(word);
        for (i, z) in group.iter_mut().enumerate() {
            *z = (word >> (29 - 3 * i) & 7) as u8;
        }
    }
}

/// Indices that [`narrow`] and [`widen`] take at a time.
const GROUP: usize = 16;

fn check_groups(bits: u8, packed: usize, nibbles: usize) -> Result<(), CodecError> {
    if !(1..=4).contains(&bits) {
        return Err(CodecError::Bits { bits, supported: "1 to 4" });
    }
    CodecError::check_multiple("the indices of 4 bits", GROUP / 2, nibbles)?;
    CodecError::check_len("packed indices", nibbles / 4 * usize::from(bits), packed)
}

/// Repacks indices of 4 bits, packed as by [`pack`], at `bits` of 1 to 4. Their number is a multiple of 16,
/// and `out` has [`packed_len`] bytes; bits of an index above its width are ignored.
#[inline]
pub fn narrow(bits: u8, nibbles: &[u8], out: &mut [u8]) -> Result<(), CodecError> {
    check_groups(bits, out.len(), nibbles.len())?;
    let isa = Isa::current();
    match bits {
        1 => arch::pack::narrow1(isa, nibbles, out),
        2 => arch::pack::narrow2(isa, nibbles, out),
        3 => arch::pack::narrow3(isa, nibbles, out),
        _ => out.copy_from_slice(nibbles),
    }
    Ok(())
}

/// Undoes [`narrow`].
#[inline]
pub fn widen(bits: u8, packed: &[u8], nibbles: &mut [u8]) -> Result<(), CodecError> {
    check_groups(bits, packed.len(), nibbles.len())?;
    let isa = Isa::current();
    match bits {
        1 => arch::pack::widen1(isa, packed, nibbles),
        2 => arch::pack::widen2(isa, packed, nibbles),
        3 => arch::pack::widen3(isa, packed, nibbles),
        _ => nibbles.copy_from_slice(packed),
    }
    Ok(())
}

/// Unpacks indices or sums of 4 bits to one per byte. `out` must be twice as long as `packed`.
#[inline]
pub(crate) fn spread4(packed: &[u8], out: &mut [u8]) -> Result<(), CodecError> {
    CodecError::check_len("output", 2 * packed.len(), out.len())?;
    arch::pack::spread4(Isa::current(), packed, out);
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn most_significant_first() {
        let mut out = [0xFF; 3];
        pack(4, &[1, 15, 7, 0, 9], &mut out).unwrap();
        assert_eq!(out, [0x1F, 0x70, 0x90]);
        pack(3, &[1, 2, 3, 4, 5, 6, 7, 0], &mut out).unwrap();
        // 001 010 01|1 100 101 1|10 111 000
        assert_eq!(out, [0x29, 0xCB, 0xB8]);
        pack(2, &[3, 0, 1, 2, 1], &mut out[..2]).unwrap();
        assert_eq!(out[..2], [0b1100_0110, 0b0100_0000]);
    }

    #[test]
    fn wrong_arguments_are_errors() {
        assert!(matches!(pack(5, &[], &mut []), Err(CodecError::Bits { bits: 5, .. })));
        assert!(pack(4, &[0; 3], &mut [0; 1]).is_err());
        assert!(matches!(narrow(5, &[], &mut []), Err(CodecError::Bits { bits: 5, .. })));
        assert!(narrow(2, &[0; 7], &mut [0; 3]).is_err() && narrow(3, &[0; 8], &mut [0; 5]).is_err());
        assert!(widen(1, &[0; 3], &mut [0; 8]).is_err() && spread4(&[0; 3], &mut [0; 5]).is_err());
        assert!(unpack(3, &[0; 3], &mut [0; 9]).is_err());
    }

    proptest! {
        /// By way of 4 bits it is the same.
        #[test]
        fn narrow_is_pack_and_widen_undoes_it(bits in 1_u8..=4, raw in prop::collection::vec(any::<u8>(), 0..9)) {
            let indices: Vec<u8> = raw.iter().flat_map(|seed| (0..16).map(move |i| seed.wrapping_mul(i) >> (8 - bits))).collect();
            let (mut nibbles, mut back) = (vec![0; indices.len() / 2], vec![0xFF; indices.len() / 2]);
            pack(4, &indices, &mut nibbles).unwrap();
            let mut want = vec![0xFF; packed_len(bits, indices.len())];
            let mut got = want.clone();
            pack(bits, &indices, &mut want).unwrap();
            narrow(bits, &nibbles, &mut got).unwrap();
            prop_assert_eq!(&want, &got);
            widen(bits, &got, &mut back).unwrap();
            prop_assert_eq!(&nibbles, &back);
            let mut spread = vec![0xFF; indices.len()];
            spread4(&back, &mut spread).unwrap();
            prop_assert_eq!(indices, spread);
        }

        #[test]
        fn round_trip(
            bits in prop::sample::select(vec![1_u8, 2, 3, 4, 8]),
            raw in prop::collection::vec(any::<u8>(), 0..100),
        ) {
            let mask = (1_u16 << bits).wrapping_sub(1) as u8;
            let mut packed = vec![0xFF; packed_len(bits, raw.len())];
            pack(bits, &raw, &mut packed).unwrap();
            let mut back = vec![0xFF; raw.len()];
            unpack(bits, &packed, &mut back).unwrap();
            for (a, b) in raw.iter().zip(&back) {
                prop_assert_eq!(a & mask, *b);
            }
        }
    }
}
