//! Memory that will be used soon.

/// Bytes of a cache line, or of half of one where they are longer.
const LINE: usize = 64;

/// Prefetches memory that is about to be read or written. It changes nothing else, and has no effect on other
/// processors than those named here.
#[inline]
pub fn prefetch(memory: &[u8]) {
    // Memory that begins within a line ends in one line more.
    for line in memory.iter().step_by(LINE).chain(memory.last()) {
        let at: *const u8 = line;
        #[cfg(target_arch = "x86_64")]
        {
            // SAFETY: a prefetch reads nothing that could be seen and faults nowhere; SSE is part of this architecture.
            unsafe { std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(at.cast()) };
        }
        #[cfg(target_arch = "aarch64")]
        {
            // SAFETY: as above; the instruction changes no register and no memory.
            unsafe {
                std::arch::asm!("prfm pldl1keep, [{at}]", at = in(reg) at, options(nostack, preserves_flags, readonly));
            }
        }
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        let _ = at;
    }
}

/// How far ahead memory that is read once, from beginning to end, is prefetched: where the processor's own
/// prefetching does little, norms take 0.6 of the time (docs/measuring.md).
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
const AHEAD: usize = 1024;

/// Prefetches what comes [`AHEAD`] coordinates after these `N`, in this tensor or in what follows it.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
#[inline(always)]
pub(super) fn prefetch_ahead<const N: usize>(from: *const f32) {
    to_second(from.wrapping_add(AHEAD), N);
}

/// Prefetches `len` coordinates from `from` on into the second-level cache, on processors with an instruction that
/// names the cache.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
#[inline(always)]
pub(super) fn to_second(from: *const f32, len: usize) {
    for first in (0..len).step_by(LINE / size_of::<f32>()) {
        let at = from.wrapping_add(first);
        #[cfg(target_arch = "x86_64")]
        {
            // SAFETY: as above.
            unsafe { std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T1 }>(at.cast()) };
        }
        #[cfg(target_arch = "aarch64")]
        {
            // SAFETY: as above.
            unsafe {
                std::arch::asm!("prfm pldl2keep, [{at}]", at = in(reg) at, options(nostack, preserves_flags, readonly));
            }
        }
    }
}

/// Prefetches the line that is written a few lines after this one, since a processor that stores to a line of the second-level
/// cache waits for it where it has much to store.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
#[inline(always)]
pub(super) fn to_write(to: *const f32) {
    let at = to.wrapping_add(6 * LINE / size_of::<f32>());
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY: as above.
        unsafe { std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_ET0 }>(at.cast()) };
    }
    #[cfg(target_arch = "aarch64")]
    {
        // SAFETY: as above.
        unsafe {
            std::arch::asm!("prfm pstl1keep, [{at}]", at = in(reg) at, options(nostack, preserves_flags, readonly));
        }
    }
}

/// Orders stores past the caches before all later stores, as other threads need it.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
#[inline(always)]
pub(super) fn fence() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: SSE is part of this architecture.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_memory_is_taken_and_stays_as_it_is() {
        let memory: Vec<u8> = (0..300).map(|i| i as u8).collect();
        for from in 0..70 {
            for to in from..memory.len() {
                prefetch(&memory[from..to]);
            }
        }
        assert!(memory.iter().enumerate().all(|(i, &byte)| byte == i as u8));
    }
}
