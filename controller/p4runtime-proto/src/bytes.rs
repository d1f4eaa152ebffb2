//! Numbers as byte strings: big endian, without leading zero bytes, at least one byte (the canonical form of the
//! P4Runtime specification, section 8.3).

/// The canonical form of a number.
#[must_use]
pub fn encode(value: u128) -> Vec<u8> {
    let bytes = value.to_be_bytes();
    let skip = (value.leading_zeros() as usize / 8).min(15);
    bytes[skip..].to_vec()
}

/// The number that a byte string means, canonical or not; `None` when it is empty or needs more than `bits`
/// bits (at most 128).
#[must_use]
pub fn decode(bytes: &[u8], bits: u32) -> Option<u128> {
    if bytes.is_empty() {
        return None;
    }
    let zeros = bytes.iter().take_while(|&&byte| byte == 0).count();
    let digits = &bytes[zeros..];
    if digits.len() > 16 {
        return None;
    }
    let value = digits.iter().fold(0, |value: u128, &byte| value << 8 | u128::from(byte));
    (128 - value.leading_zeros() <= bits).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn zero_is_one_byte() {
        assert_eq!(encode(0), [0]);
        assert_eq!(encode(0x100), [1, 0]);
        assert_eq!(decode(&[], 8), None);
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(value: u128, zeros in 0usize..20, shift in 0u32..128) {
            let value = value >> shift;
            let bytes = encode(value);
            prop_assert!(bytes.len() == 1 || bytes[0] != 0);
            prop_assert_eq!(decode(&bytes, 128), Some(value));
            let padded: Vec<u8> = std::iter::repeat_n(0, zeros).chain(bytes).collect();
            prop_assert_eq!(decode(&padded, 128), Some(value));
            let bits = 128 - value.leading_zeros();
            prop_assert_eq!(decode(&padded, bits), Some(value));
            prop_assert!(bits == 0 || decode(&padded, bits - 1).is_none());
        }

        #[test]
        fn nothing_panics(bytes: Vec<u8>, bits in 0u32..=128) {
            let _ = decode(&bytes, bits);
        }
    }
}
