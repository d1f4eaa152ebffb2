//! Packet forms: what is read is what was written, and what is written is read the same.

use thc_protocol::wire::Form;
use thc_protocol::wire::{
    Ask, HEADER_LEN, Header, HeaderError, Join, Kind, Leave, Mismatch, Norm, Nudge, Pending, Refused,
    Straggler, VERSION, Welcome,
};

macro_rules! round_trip {
    ($payload:ident: $($form:ident),*) => {
        $(if let Some(read) = $form::parse($payload) {
            let written = read.to_bytes();
            assert_eq!(written.len(), $payload.len());
            // By bytes, since a NaN equals nothing.
            assert_eq!($form::parse(&written).map(|again| again.to_bytes()), Some(written));
        })*
    };
}

pub fn run(data: &[u8]) {
    forms(data);
    match Header::parse(data) {
        Ok((header, payload)) => {
            assert_eq!(payload.len(), data.len() - HEADER_LEN);
            let mut written = [0xEE; HEADER_LEN];
            header.emit(&mut written);
            // The last byte is reserved.
            assert_eq!(written[..HEADER_LEN - 1], data[..HEADER_LEN - 1]);
            assert_eq!(Header::parse(&written), Ok((header, &[][..])));
            assert_eq!(header.kind.is_control(), data[1] & 0x20 != 0);
            for form in Form::ALL {
                assert!(header.kind.payload_len(form) <= thc_protocol::wire::RESULT_LEN);
            }
            forms(payload);
        }
        Err(HeaderError::Short(len)) => assert!(len == data.len() && len < HEADER_LEN),
        Err(HeaderError::Version(version)) => assert!(version == data[0] && version != VERSION),
        Err(HeaderError::Kind(kind)) => assert!(kind == data[1] && Kind::from_byte(kind).is_none()),
    }
}

fn forms(payload: &[u8]) {
    round_trip!(payload: Ask, Join, Leave, Mismatch, Norm, Nudge, Pending, Refused, Straggler, Welcome);
}
