//! The Internet checksum of a UDP datagram (RFC 768): the ones' complement of the ones'
//! complement sum over a pseudo header, the UDP header and the payload.

use std::net::IpAddr;

use crate::Peer;

/// IP protocol number of UDP, part of the pseudo header.
const UDP: u32 = 17;

/// The checksum that the sender of `payload` writes into the UDP header. Never 0, which UDP
/// reserves for "no checksum".
pub(crate) fn checksum(from: Peer, to: Peer, payload: &[u8]) -> u16 {
    match !fold(sum(from, to, payload)) {
        0 => 0xffff,
        written => written,
    }
}

/// Returns whether a datagram is as it was sent, given all of it from the source address in its IPv4 header on: addresses, UDP
/// header, payload. Besides these, the pseudo header has only the protocol and the length.
#[inline]
pub(crate) fn verify_in_place(addresses_on: &[u8]) -> bool {
    let rest = UDP as u16 + (addresses_on.len() - 8) as u16;
    // The words are summed as the processor loads them: so is this one, and all ones are all ones in any order.
    fold(best_sum_of_words(addresses_on) + u64::from(rest.to_be())) == 0xffff
}

/// Returns whether an IPv4 header is as it was sent.
#[inline]
pub(crate) fn verify_header(header: &[u8; 20]) -> bool {
    fold(sum_of_words(header)) == 0xffff
}

fn sum(from: Peer, to: Peer, payload: &[u8]) -> u64 {
    sum_of_ends(from, to) + 2 * (8 + payload.len() as u64) + sum_of_bytes(payload)
}

/// Returns the sum of addresses, ports and protocol. The length comes on top, twice: it is in the pseudo header and in
/// UDP's.
pub(crate) fn sum_of_ends(from: Peer, to: Peer) -> u64 {
    let mut sum = u64::from(UDP) + u64::from(from.port()) + u64::from(to.port());
    for ip in [from.ip(), to.ip()] {
        let bits = match ip {
            IpAddr::V4(ip) => u128::from(ip.to_bits()),
            IpAddr::V6(ip) => ip.to_bits(),
        };
        sum += (0..8).map(|word| u64::from((bits >> (16 * word)) as u16)).sum::<u64>();
    }
    sum
}

/// Returns the sum of a run of bytes that begins at an even offset.
///
/// Byte order only swaps the bytes of the sum itself (RFC 1071), so the sum is taken over whole words as the
/// processor loads them.
#[inline]
pub(crate) fn sum_of_bytes(bytes: &[u8]) -> u64 {
    in_wire_order(best_sum_of_words(bytes))
}

/// [`sum_of_words`], or an equivalent (the same remainder modulo 2^16 − 1, and zero for the same bytes) by
/// the processor's best instructions. For headers that is not worth the check.
#[inline]
fn best_sum_of_words(bytes: &[u8]) -> u64 {
    #[cfg(target_arch = "x86_64")]
    if bytes.len() >= 128 {
        if avx512::is_present() && bytes.len() <= avx512::LONGEST {
            // SAFETY: the processor has what it needs.
            return unsafe { avx512::sum_of_words(bytes) };
        }
        if std::arch::is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has AVX2.
            return unsafe { avx2::sum_of_words(bytes) };
        }
    }
    sum_of_words(bytes)
}

/// A sum of words as the processor loads them, in 16 bits and in wire order.
#[inline]
fn in_wire_order(sum: u64) -> u64 {
    u64::from(u16::from_be(fold(sum)))
}

/// The sum of 32-bit words in the processor's order, the last filled up with zeros.
#[inline]
fn sum_of_words(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<4>();
    let mut last = [0; 4];
    for (byte, &left) in last.iter_mut().zip(rest) {
        *byte = left;
    }
    let word = |bytes: [u8; 4]| u64::from(u32::from_ne_bytes(bytes));
    words.iter().map(|&bytes| word(bytes)).sum::<u64>() + word(last)
}

/// A sum in 16 bits, carries added back in.
#[inline]
pub(crate) fn fold(sum: u64) -> u16 {
    // Each step takes the upper half down; after the third, 17 bits are left, after the fourth, 16.
    let sum = (sum & 0xffff_ffff) + (sum >> 32);
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = (sum & 0xffff) + (sum >> 16);
    ((sum & 0xffff) + (sum >> 16)) as u16
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::arch::x86_64::{
        __m256i, _mm_add_epi64, _mm_cvtsi128_si64, _mm_unpackhi_epi64, _mm256_add_epi64, _mm256_and_si256,
        _mm256_castsi256_si128, _mm256_extracti128_si256, _mm256_loadu_si256, _mm256_set1_epi64x,
        _mm256_setzero_si256, _mm256_srli_epi64,
    };

    /// [`super::sum_of_words`], 64 bytes at a time.
    #[target_feature(enable = "avx2")]
    pub fn sum_of_words(bytes: &[u8]) -> u64 {
        let (blocks, rest) = bytes.as_chunks::<64>();
        let low = _mm256_set1_epi64x(0xffff_ffff);
        // Words at even and at odd places, of the first and of the second half of each block.
        let mut sums = [_mm256_setzero_si256(); 4];
        for block in blocks {
            let (first, second) = block.split_at(32);
            // SAFETY: both are 32 bytes long, and the loads need no alignment.
            let halves: [__m256i; 2] =
                [first, second].map(|half| unsafe { _mm256_loadu_si256(half.as_ptr().cast()) });
            for (pair, words) in sums.chunks_exact_mut(2).zip(halves) {
                pair[0] = _mm256_add_epi64(pair[0], _mm256_and_si256(words, low));
                pair[1] = _mm256_add_epi64(pair[1], _mm256_srli_epi64::<32>(words));
            }
        }
        let [a, b, c, d] = sums;
        let four = _mm256_add_epi64(_mm256_add_epi64(a, b), _mm256_add_epi64(c, d));
        let two = _mm_add_epi64(_mm256_castsi256_si128(four), _mm256_extracti128_si256::<1>(four));
        let one = _mm_add_epi64(two, _mm_unpackhi_epi64(two, two));
        _mm_cvtsi128_si64(one).cast_unsigned() + super::sum_of_words(rest)
    }
}

#[cfg(target_arch = "x86_64")]
mod avx512 {
    use std::arch::x86_64::{
        __m512i, _mm512_add_epi32, _mm512_dpwssd_epi32, _mm512_loadu_si512, _mm512_maskz_loadu_epi8,
        _mm512_reduce_add_epi32, _mm512_set1_epi16, _mm512_setzero_si512, _mm512_xor_si512,
    };

    /// Bytes above which 32 bits might overflow: more than a datagram has.
    pub const LONGEST: usize = 1 << 16;

    #[inline]
    pub fn is_present() -> bool {
        std::arch::is_x86_feature_detected!("avx512bw") && std::arch::is_x86_feature_detected!("avx512vnni")
    }

    /// Replaces [`super::sum_of_words`] by the sum of 16-bit words, which has the same remainder modulo 2^16
    /// − 1 and is zero for the same bytes. At most [`LONGEST`] words.
    #[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
    pub fn sum_of_words(bytes: &[u8]) -> u64 {
        // Up to where a cache line begins: loads that straddle two take longer.
        let ahead = bytes.as_ptr().align_offset(64);
        let (first, bytes) = bytes.split_at(if ahead.is_multiple_of(2) { ahead.min(bytes.len()) } else { 0 });
        let (blocks, rest) = bytes.as_chunks::<64>();
        let none = _mm512_setzero_si512();
        let mut sums = [none, none, none, add(none, short(first))];
        let (fours, single) = blocks.as_chunks::<4>();
        for four in fours {
            for (sum, block) in sums.iter_mut().zip(four) {
                // SAFETY: the block is 64 bytes long, and the load needs no alignment.
                *sum = add(*sum, unsafe { _mm512_loadu_si512(block.as_ptr().cast()) });
            }
        }
        for (sum, block) in sums.iter_mut().zip(single) {
            // SAFETY: as above.
            *sum = add(*sum, unsafe { _mm512_loadu_si512(block.as_ptr().cast()) });
        }
        let [a, b, c, d] = sums;
        let sum = _mm512_add_epi32(_mm512_add_epi32(a, b), _mm512_add_epi32(c, add(d, short(rest))));
        let words = 32 * (blocks.len() as i64 + 2);
        (i64::from(_mm512_reduce_add_epi32(sum)) + (words << 15)).cast_unsigned()
    }

    /// Fewer than 64 bytes, filled up with zeros.
    #[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
    #[inline]
    fn short(bytes: &[u8]) -> __m512i {
        assert!(bytes.len() < 64);
        // SAFETY: only as many bytes are read as there are.
        unsafe { _mm512_maskz_loadu_epi8((1 << bytes.len()) - 1, bytes.as_ptr().cast()) }
    }

    /// Adds up pairs of words, each less 2^15: the instruction takes them as signed.
    #[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
    #[inline]
    fn add(sum: __m512i, words: __m512i) -> __m512i {
        let signed = _mm512_xor_si512(words, _mm512_set1_epi16(i16::MIN));
        _mm512_dpwssd_epi32(sum, signed, _mm512_set1_epi16(1))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// Returns whether `payload` still belongs to `written`.
    fn verify(from: Peer, to: Peer, payload: &[u8], written: u16) -> bool {
        fold(sum(from, to, payload) + u64::from(written)) == 0xffff
    }

    /// Each instruction set that the processor has, on bytes at the edges of what 16 and 32 bits hold.
    #[cfg(target_arch = "x86_64")]
    #[test]
    fn every_instruction_set_sums_alike() {
        let mut sums: Vec<unsafe fn(&[u8]) -> u64> = Vec::new();
        if std::arch::is_x86_feature_detected!("avx2") {
            sums.push(avx2::sum_of_words);
        }
        if avx512::is_present() {
            sums.push(avx512::sum_of_words);
        }
        let mut random = fastrand::Rng::with_seed(3);
        for len in (0..600).chain([1044, 1472, avx512::LONGEST - 1, avx512::LONGEST]) {
            let mut bytes = vec![0; len];
            for fill in [Some(0), Some(0x7f), Some(0x80), Some(0xff), None] {
                match fill {
                    Some(byte) => bytes.fill(byte),
                    None => random.fill(&mut bytes),
                }
                let expected = fold(sum_of_words(&bytes));
                for sum in &sums {
                    // SAFETY: the processor has what these need.
                    assert_eq!(fold(unsafe { sum(&bytes) }), expected, "{len} bytes, {fill:?}");
                }
            }
        }
    }

    #[test]
    fn known_datagram() {
        // By hand: c0a8+0001+c0a8+00c7 (addresses) + 0011+000b (protocol, length)
        // + 0400+0035+000b (UDP header) + 6869+2100 (payload, padded) = 0x20fdd; its carry
        // added 0x0fdf; complement 0xf020.
        let from = "192.168.0.1:1024".parse().unwrap();
        let to = "192.168.0.199:53".parse().unwrap();
        assert_eq!(checksum(from, to, b"hi!"), 0xf020);
        assert!(verify(from, to, b"hi!", checksum(from, to, b"hi!")));
    }

    #[test]
    fn zero_is_never_written() {
        // A payload word chosen so that everything sums to 0xffff, whose complement is 0.
        let from = "0.0.0.0:0".parse().unwrap();
        let to = "0.0.0.0:0".parse().unwrap();
        let rest = fold(sum(from, to, &[0, 0]));
        let payload = (!rest).to_be_bytes();
        assert_eq!(checksum(from, to, &payload), 0xffff);
        assert!(verify(from, to, &payload, 0xffff));
    }

    proptest::proptest! {
        #[test]
        fn words_sum_to_what_their_halves_sum_to(
            bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..1200),
            from in 0usize..64,
        ) {
            let bytes = bytes.get(from..).unwrap_or(&bytes);
            let halves = bytes.chunks(2).map(|half| u64::from(half[0]) << 8 | half.get(1).map_or(0, |&b| u64::from(b)));
            let (expected, got) = (fold(halves.sum()), sum_of_bytes(bytes));
            // Zero has two forms.
            proptest::prop_assert_eq!(u64::from(expected) % 0xffff, got % 0xffff);
            proptest::prop_assert_eq!(expected == 0, got == 0);
        }

        #[test]
        fn folding_keeps_the_remainder(sum in proptest::num::u64::ANY) {
            proptest::prop_assert_eq!(u64::from(fold(sum)) % 0xffff, sum % 0xffff);
            proptest::prop_assert_eq!(fold(sum) == 0, sum == 0);
        }

        /// A burst of up to 15 bits changes at most one bit per column of the 16-bit sum and
        /// not all of them, so it can't cancel out.
        #[test]
        fn every_short_burst_is_detected(
            mut payload in proptest::collection::vec(proptest::num::u8::ANY, 2..200),
            start in 0usize..10_000,
            pattern in 1u16..0x8000,
        ) {
            let from = "10.0.0.1:4000".parse().unwrap();
            let to = "10.0.0.2:5000".parse().unwrap();
            let written = checksum(from, to, &payload);
            proptest::prop_assert!(verify(from, to, &payload, written));
            let bits = payload.len() * 8;
            let mut flipped = 0;
            for offset in 0..15 {
                let bit = start % bits + offset;
                if pattern >> offset & 1 == 1 && bit < bits {
                    payload[bit / 8] ^= 0x80 >> (bit % 8);
                    flipped += 1;
                }
            }
            proptest::prop_assert_eq!(verify(from, to, &payload, written), flipped == 0);
        }
    }
}
