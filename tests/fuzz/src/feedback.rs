//! Saved error feedback: read or refused, never larger than what it comes from.

use thc_codec::feedback::ErrorFeedback;

pub fn run(data: &[u8]) {
    // The length that the tensor has: that of the file, or another.
    let Some((&first, saved)) = data.split_first() else { return };
    let length = match first {
        0xFF => usize::MAX,
        0x80..=0xFE => saved.len().saturating_sub(16) / 4,
        small => usize::from(small),
    };
    if let Ok(read) = ErrorFeedback::from_bytes(length, saved) {
        assert_eq!(read.as_slice().len(), length);
        assert!(read.as_slice().iter().all(|value| value.is_finite()));
        assert_eq!(read.to_bytes(), saved);
    }
}
