//! Positions of a sparse vector: ⌈log₂ d⌉ bits for each, in ascending order, most significant bit first.

use thc_codec::CodecError;

/// ⌈log₂ d⌉: bits of a position.
#[must_use]
pub const fn position_bits(dimension: usize) -> u32 {
    if dimension <= 1 { 0 } else { usize::BITS - (dimension - 1).leading_zeros() }
}

/// Appends `positions`, which must ascend and be below `dimension`, of at most 2^32.
///
/// # Errors
/// [`CodecError::Message`] if they do not ascend or are not below `dimension`.
pub fn encode(positions: &[u32], dimension: usize, out: &mut Vec<u8>) -> Result<(), CodecError> {
    if positions.windows(2).any(|pair| pair[0] >= pair[1])
        || positions.last().is_some_and(|last| *last as usize >= dimension)
    {
        let reason = format!("positions do not ascend, or are not below {dimension}");
        return Err(CodecError::Message { reason });
    }
    let (mut word, mut filled) = (0_u64, 0);
    for position in positions {
        word = word << position_bits(dimension) | u64::from(*position);
        filled += position_bits(dimension);
        while filled >= 8 {
            filled -= 8;
            out.push((word >> filled) as u8);
        }
    }
    if filled > 0 {
        out.push((word << (8 - filled)) as u8);
    }
    Ok(())
}

/// Undoes [`encode`] for `count` positions; returns them and how many bytes they took.
///
/// # Errors
/// [`CodecError::Message`] for anything that [`encode`] would not write.
pub fn decode(bytes: &[u8], count: usize, dimension: usize) -> Result<(Vec<u32>, usize), CodecError> {
    let broken = |reason: &str| CodecError::Message { reason: reason.to_owned() };
    if count > dimension {
        return Err(broken("it has more positions than coordinates"));
    }
    let bits = position_bits(dimension);
    let length = (count * bits as usize).div_ceil(8);
    let mut bytes = bytes.get(..length).ok_or_else(|| broken("it ends within its positions"))?.iter();
    let (mut word, mut filled) = (0_u64, 0);
    let mut positions: Vec<u32> = Vec::with_capacity(count);
    for _ in 0..count {
        while filled < bits {
            word = word << 8 | u64::from(bytes.next().copied().unwrap_or(0));
            filled += 8;
        }
        filled -= bits;
        let position = (word >> filled & ((1 << bits) - 1)) as u32;
        if position as usize >= dimension || positions.last().is_some_and(|last| *last >= position) {
            return Err(broken("its positions do not ascend, or are outside"));
        }
        positions.push(position);
    }
    if word & ((1 << filled) - 1) != 0 {
        return Err(broken("it has bits behind its positions"));
    }
    Ok((positions, length))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn by_hand() {
        let mut out = vec![7];
        encode(&[1, 4, 5], 6, &mut out).unwrap();
        assert_eq!(out, [7, 0b0011_0010, 0b1000_0000]);
        assert_eq!(decode(&out[1..], 3, 6).unwrap(), (vec![1, 4, 5], 2));
        assert_eq!(decode(&[], 1, 1).unwrap(), (vec![0], 0));
        assert!(encode(&[6], 6, &mut out).is_err() && encode(&[2, 2], 6, &mut out).is_err());
        assert!(decode(&[0b0011_0010], 3, 6).is_err());
        assert!(decode(&[0b0011_0010, 0b1000_0001], 3, 6).is_err());
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(chosen in prop::collection::btree_set(0_u32..100_000, 0..300), more in 0_usize..1000) {
            let positions: Vec<u32> = chosen.into_iter().collect();
            let dimension = positions.last().map_or(1, |last| *last as usize + 1) + more;
            let mut out = Vec::new();
            encode(&positions, dimension, &mut out).unwrap();
            prop_assert_eq!(out.len(), (positions.len() * position_bits(dimension) as usize).div_ceil(8));
            let read = decode(&out, positions.len(), dimension).unwrap();
            prop_assert_eq!(read, (positions, out.len()));
        }

        #[test]
        fn noise_is_refused_or_read(bytes in prop::collection::vec(any::<u8>(), 0..40), count in 0_usize..60, dimension in 1_usize..5000) {
            if let Ok((positions, used)) = decode(&bytes, count, dimension) {
                let mut again = Vec::new();
                encode(&positions, dimension, &mut again).unwrap();
                prop_assert_eq!(&again, &bytes[..used]);
            }
        }
    }
}
