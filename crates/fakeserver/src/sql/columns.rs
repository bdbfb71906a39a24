//! What columns a statement returns and what stands in them, read from its select list. Knows
//! literals and parameters; everything else is the number 1.

use super::lexer::{self, Token};

const INT4: u32 = 23;
const INT8: u32 = 20;
const TEXT: u32 = 25;

/// Words that end a select list.
const LIST_ENDS: [&str; 8] = ["FROM", "WHERE", "ORDER", "GROUP", "LIMIT", "OFFSET", "UNION", "FOR"];

/// What stands in a column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Value {
    Integer(i64),
    Text(Box<str>),
    Null,
    /// Parameter `$n` as text, n from 1.
    Parameter(usize),
}

/// One column of the only row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Column {
    pub(crate) name: Box<str>,
    pub(crate) value: Value,
}

impl Column {
    /// A column without a name that holds the number 1.
    pub(crate) fn one() -> Self {
        Self { name: "?column?".into(), value: Value::Integer(1) }
    }

    pub(crate) fn type_oid(&self) -> u32 {
        match self.value {
            Value::Integer(number) if i32::try_from(number).is_ok() => INT4,
            Value::Integer(_) => INT8,
            _ => TEXT,
        }
    }

    pub(crate) fn type_size(&self) -> i16 {
        match self.type_oid() {
            INT4 => 4,
            INT8 => 8,
            _ => -1,
        }
    }

    /// The value's bytes on the wire; `None` is NULL.
    pub(crate) fn encode(&self, parameters: &[Option<String>], binary: bool) -> Option<Vec<u8>> {
        match &self.value {
            Value::Integer(number) if binary && self.type_oid() == INT4 => {
                Some((*number as i32).to_be_bytes().to_vec())
            }
            Value::Integer(number) if binary => Some(number.to_be_bytes().to_vec()),
            Value::Integer(number) => Some(number.to_string().into_bytes()),
            Value::Text(text) => Some(text.as_bytes().to_vec()),
            Value::Null => None,
            Value::Parameter(number) => {
                parameters.get(number - 1)?.as_ref().map(|text| text.clone().into_bytes())
            }
        }
    }
}

/// The columns of the select list at the start of `list`.
pub(crate) fn parse_list(list: &str) -> Vec<Column> {
    let end = lexer::tokens(list)
        .find(|token| LIST_ENDS.iter().any(|word| token.is_keyword(word)))
        .map_or(list.len(), |token| token.start);
    lexer::split(&list[..end], ',').into_iter().map(parse_item).collect()
}

fn parse_item(item: &str) -> Column {
    let tokens: Vec<Token<'_>> = lexer::tokens(item).collect();
    let (expression, alias) = match tokens.as_slice() {
        [expression @ .., keyword, alias] if keyword.is_keyword("AS") => (expression, Some(alias)),
        all => (all, None),
    };
    let cast = expression.windows(2).position(|pair| pair[0].text == ":" && pair[1].text == ":");
    let plain = &expression[..cast.unwrap_or(expression.len())];
    let name = match alias {
        Some(alias) => alias.text.trim_matches('"'),
        None => name_of(plain).unwrap_or("?column?"),
    };
    Column { name: name.into(), value: value_of(plain) }
}

/// The name PostgreSQL gives to a function call or a column reference.
fn name_of<'a>(expression: &[Token<'a>]) -> Option<&'a str> {
    let word = match expression {
        [word, open, ..] if open.text == "(" => word,
        [word] => word,
        [.., dot, word] if dot.text == "." => word,
        _ => return None,
    };
    let starts_a_name = |text: &str| text.starts_with(|c: char| c.is_alphabetic() || c == '_');
    let is_name = starts_a_name(word.text) && !word.text.eq_ignore_ascii_case("null");
    is_name.then_some(word.text)
}

fn value_of(expression: &[Token<'_>]) -> Value {
    let number = |text: &str| text.parse::<i64>().ok();
    let value = match expression {
        [sign, digits] if sign.text == "-" => number(digits.text).map(|n| Value::Integer(-n)),
        [token] if token.text.eq_ignore_ascii_case("null") => Some(Value::Null),
        [token] if token.text.starts_with('\'') => {
            Some(Value::Text(token.text.trim_matches('\'').into()))
        }
        [token] => match token.text.strip_prefix('$') {
            Some(parameter) => {
                parameter.parse().ok().filter(|&parameter| parameter > 0).map(Value::Parameter)
            }
            None => number(token.text).map(Value::Integer),
        },
        _ => None,
    };
    value.unwrap_or(Value::Integer(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_parameters_and_names_are_kept_and_the_rest_is_one() {
        for (list, name, value) in [
            (" 42", "?column?", Value::Integer(42)),
            (" -7 AS x", "x", Value::Integer(-7)),
            (" 'a b' AS \"B\" FROM t", "B", Value::Text("a b".into())),
            (" null", "?column?", Value::Null),
            (" $2::int", "?column?", Value::Parameter(2)),
            (" abalance FROM accounts WHERE aid = 5", "abalance", Value::Integer(1)),
            (" t.a", "a", Value::Integer(1)),
            (" count(*) FROM t", "count", Value::Integer(1)),
            (" 1 + 1", "?column?", Value::Integer(1)),
            (" *", "?column?", Value::Integer(1)),
            ("", "?column?", Value::Integer(1)),
        ] {
            assert_eq!(parse_list(list), [Column { name: name.into(), value }], "{list}");
        }
        assert_eq!(parse_list(" 1 AS one, f(2, 3), 'x,y'").len(), 3);
    }

    #[test]
    fn big_integers_take_eight_bytes() {
        let column = Column { value: Value::Integer(1 << 40), ..Column::one() };
        assert_eq!((column.type_oid(), column.type_size()), (INT8, 8));
        assert_eq!(column.encode(&[], true), Some((1_i64 << 40).to_be_bytes().to_vec()));
        assert_eq!(Column::one().encode(&[], true), Some(vec![0, 0, 0, 1]));
    }
}
