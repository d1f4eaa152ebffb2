//! Lookup tables by bytes of indices as entries of a program's tables.

use crate::error::ControllerError;
use crate::schema::Schema;
use p4runtime_proto::bytes::encode;
use p4runtime_proto::v1::TableEntry;
use p4runtime_proto::v1::field_match::FieldMatchType;
use p4runtime_proto::v1::table_action::Type;
use thc_p4::rows::LookupBytes;

impl Schema {
    /// The rows of a lookup table, an entry for each byte in each of the tables: tens of thousands.
    ///
    /// # Errors
    /// As [`Schema::entry`].
    pub fn lookup_entries(&self, lookup: &LookupBytes) -> Result<Vec<TableEntry>, ControllerError> {
        let mut entries = Vec::new();
        for table in self.lookups() {
            let name = table.preamble.as_ref().map_or("", |preamble| &preamble.alias);
            entries.append(&mut self.lookup_entries_of(name, lookup)?);
        }
        Ok(entries)
    }

    fn lookup_entries_of(
        &self,
        table: &str,
        lookup: &LookupBytes,
    ) -> Result<Vec<TableEntry>, ControllerError> {
        let action = table.replacen("lookup", "set", 1);
        let key = [("lookup", lookup.number.into()), ("indices", u8::MAX.into())];
        // Names are looked up for one of them.
        let last = self.entry_of(table, &key, (&action, vec![("values", lookup.lanes(u8::MAX))]))?;
        let row = |byte: u8| {
            let mut entry = last.clone();
            if let Some(FieldMatchType::Exact(exact)) =
                entry.r#match.last_mut().and_then(|field| field.field_match_type.as_mut())
            {
                exact.value = encode(byte.into());
            }
            if let Some(Type::Action(action)) =
                entry.action.as_mut().and_then(|action| action.r#type.as_mut())
            {
                action.params.iter_mut().for_each(|param| param.value = encode(lookup.lanes(byte)));
            }
            entry
        };
        Ok((0..=u8::MAX).map(row).collect())
    }
}
