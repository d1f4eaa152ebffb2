//! Huge pages for large buffers.

/// Asks the system to back this memory with huge pages where it can, before it is first touched: fewer faults, each for
/// 2 MiB, and fewer misses of the TLB. Parts of pages at either end are left out. Where there are no huge
/// pages, this has no effect.
#[allow(unused_variables)]
pub(crate) fn ask_for_huge<T: bytemuck::Pod>(memory: &mut [T]) {
    #[cfg(target_os = "linux")]
    {
        const PAGE: usize = 4096;
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(memory);
        let before = bytes.as_ptr().align_offset(PAGE);
        let Some(len) = bytes.len().checked_sub(before).map(|rest| rest / PAGE * PAGE).filter(|&len| len > 0)
        else {
            return;
        };
        // SAFETY: the range lies in memory borrowed here, and the advice changes nothing that can be read from it.
        let _ = unsafe { libc::madvise(bytes[before..].as_mut_ptr().cast(), len, libc::MADV_HUGEPAGE) };
    }
}
