//! The length of a payload by its kind (P2 kinds).

use super::{
    ASK_LEN, Form, JOIN_LEN, Kind, LEAVE_LEN, MISMATCH_LEN, NORM_LEN, NUDGE_LEN, PENDING_LEN, RAW_LEN,
    REFUSED_LEN, STRAGGLER_LEN, WELCOME_LEN,
};

impl Kind {
    /// Length of the payload in bytes: of DATA and RESULT in this form; of WELCOME and DESCRIPTION without
    /// the lists at their end.
    #[inline]
    pub const fn payload_len(self, form: Form) -> usize {
        match self {
            Kind::Norm | Kind::NormResult => NORM_LEN,
            Kind::Data => form.data_len(),
            Kind::Raw | Kind::RawResult => RAW_LEN,
            Kind::Result => form.result_len(),
            Kind::Straggler => STRAGGLER_LEN,
            Kind::Mismatch => MISMATCH_LEN,
            Kind::Nudge => NUDGE_LEN,
            Kind::Join => JOIN_LEN,
            Kind::Leave => LEAVE_LEN,
            Kind::Welcome | Kind::Description => WELCOME_LEN,
            Kind::Pending => PENDING_LEN,
            Kind::Refused => REFUSED_LEN,
            Kind::Bye => 0,
            Kind::Ask => ASK_LEN,
        }
    }
}
