//! Writes JSON text. Knows no structures, and does not read JSON.

use std::fmt::{Display, Write};

/// `text` as a JSON string, quotes included.
pub(crate) fn string(text: &str) -> String {
    let mut json = String::with_capacity(text.len() + 2);
    json.push('"');
    for character in text.chars() {
        match character {
            '"' => json.push_str("\\\""),
            '\\' => json.push_str("\\\\"),
            '\n' => json.push_str("\\n"),
            '\r' => json.push_str("\\r"),
            '\t' => json.push_str("\\t"),
            control if control < ' ' => {
                let _ = write!(json, "\\u{:04x}", u32::from(control));
            }
            other => json.push(other),
        }
    }
    json.push('"');
    json
}

/// An array of values that are JSON already.
pub(crate) fn array(values: impl IntoIterator<Item = String>) -> String {
    format!("[{}]", values.into_iter().collect::<Vec<_>>().join(", "))
}

/// An object of values that are JSON already, in the order given.
pub(crate) fn object<K: Display, V: Display>(pairs: impl IntoIterator<Item = (K, V)>) -> String {
    let pairs: Vec<String> = pairs
        .into_iter()
        .map(|(key, value)| format!("{}: {value}", string(&key.to_string())))
        .collect();
    format!("{{{}}}", pairs.join(", "))
}

#[cfg(test)]
mod tests {
    #[test]
    fn what_json_cannot_hold_as_it_is_is_escaped() {
        assert_eq!(super::string("a \"b\" \\ \n \u{1} é"), r#""a \"b\" \\ \n \u0001 é""#);
    }

    #[test]
    fn objects_and_arrays_nest() {
        let array = super::array(["1".to_owned(), super::string("x")]);
        assert_eq!(super::object([("a", array)]), r#"{"a": [1, "x"]}"#);
    }
}
