//! One set of options laid over another, whatever options they are.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// Merges `over` into `under`, section by section; the keys of `over` win.
///
/// # Errors
/// A value that has no text, such as a path that is not UTF-8.
pub fn merge<T: Serialize + DeserializeOwned>(under: &T, over: &T) -> Result<T, serde_json::Error> {
    let mut merged = serde_json::to_value(under)?;
    merge_values(&mut merged, serde_json::to_value(over)?);
    serde_json::from_value(merged)
}

/// Sets one key of the options, as a file would.
///
/// # Errors
/// There is no such key, or this is not a value for it: a text that includes the key's name.
pub fn set<T: Serialize + DeserializeOwned>(options: &mut T, key: &str, value: Value) -> Result<(), String> {
    let wrong = |error: serde_json::Error| format!("{key}: {error}");
    let mut merged = serde_json::to_value(&*options).map_err(wrong)?;
    merge_values(&mut merged, Value::Object(Map::from_iter([(key.to_owned(), value)])));
    *options = serde_json::from_value(merged).map_err(wrong)?;
    Ok(())
}

/// A null value counts as absent.
fn merge_values(under: &mut Value, over: Value) {
    match (under, over) {
        (_, Value::Null) => {}
        (Value::Object(under), Value::Object(over)) => {
            for (key, value) in over {
                merge_values(under.entry(key).or_insert(Value::Null), value);
            }
        }
        (under, over) => *under = over,
    }
}
