//! A second reading of the language: trees that are computed by walking them, and printed with as
//! few parentheses as the grammar allows. Slow and plain; `properties` holds the compiler to it.

use super::super::eval::{Value, value_of_text};
use super::super::random::Random;
use proptest::prelude::*;

/// An expression as a tree.
#[derive(Debug, Clone)]
pub(super) enum Tree {
    Leaf(String),
    Prefix(&'static str, Box<Self>),
    Infix(&'static str, Box<Self>, Box<Self>),
    Test(Box<Self>, &'static str),
    Call(&'static str, Vec<Self>),
    Case(Vec<(Self, Self)>, Option<Box<Self>>),
}

const INFIX: [(&str, u8); 19] = [
    ("or", 1),
    ("and", 2),
    ("<", 5),
    ("<=", 5),
    ("=", 5),
    ("<>", 5),
    (">", 5),
    (">=", 5),
    ("|", 6),
    ("#", 6),
    ("&", 6),
    ("<<", 6),
    (">>", 6),
    ("+", 7),
    ("-", 7),
    ("*", 8),
    ("/", 8),
    ("%", 8),
    ("!=", 5),
];
const CALLS: [(&str, usize); 12] = [
    ("abs", 1),
    ("int", 1),
    ("double", 1),
    ("greatest", 3),
    ("least", 2),
    ("mod", 2),
    ("random", 2),
    ("debug", 1),
    ("hash", 2),
    ("hash_fnv1a", 2),
    ("permute", 3),
    ("pi", 0),
];
const LEAVES: [&str; 16] = [
    "0",
    "1",
    "2",
    "7",
    "63",
    "9223372036854775807",
    "1.5",
    "0.25",
    "1e300",
    "null",
    "true",
    "false",
    ":i",
    ":d",
    ":t",
    ":z",
];
const TESTS: [&str; 5] = ["is null", "is not null", "isnull", "notnull", "is true"];

/// Trees of every shape.
pub(super) fn trees() -> impl Strategy<Value = Tree> {
    let leaf = proptest::sample::select(LEAVES.to_vec()).prop_map(|l| Tree::Leaf(l.into()));
    leaf.prop_recursive(6, 60, 3, |inner| {
        let pair = (inner.clone(), inner.clone());
        prop_oneof![
            6 => (proptest::sample::select(INFIX.to_vec()), pair.clone())
                .prop_map(|((name, _), (a, b))| Tree::Infix(name, a.into(), b.into())),
            2 => (proptest::sample::select(vec!["-", "~", "not", "+"]), inner.clone())
                .prop_map(|(name, a)| Tree::Prefix(name, a.into())),
            1 => (inner.clone(), proptest::sample::select(TESTS.to_vec()))
                .prop_map(|(a, test)| Tree::Test(a.into(), test)),
            2 => (proptest::sample::select(CALLS.to_vec()), prop::collection::vec(inner.clone(), 3))
                .prop_map(|((name, count), mut a)| {
                    a.truncate(count);
                    Tree::Call(name, a)
                }),
            1 => (prop::collection::vec(pair, 1..3), proptest::option::of(inner))
                .prop_map(|(branches, rest)| Tree::Case(branches, rest.map(Box::new))),
        ]
    })
}

impl Tree {
    /// How tightly its outermost operator binds.
    fn level(&self) -> u8 {
        match self {
            Self::Infix(name, ..) => INFIX.iter().find(|(n, _)| n == name).expect("listed").1,
            Self::Prefix("not", _) => 3,
            Self::Test(..) => 4,
            Self::Prefix("~", _) => 6,
            Self::Prefix(..) => 9,
            _ => 10,
        }
    }

    /// Its text, with parentheses around every operand.
    pub(super) fn full(&self) -> String {
        self.print(&|child, _| format!("({})", child.full()))
    }

    /// Its text, with parentheses only where it would mean something else without them.
    pub(super) fn sparse(&self) -> String {
        self.print(&|child, least| match child.level() >= least {
            true => child.sparse(),
            false => format!("({})", child.sparse()),
        })
    }

    /// `operand` prints a child whose operator must bind at least as tightly as a level.
    fn print(&self, operand: &dyn Fn(&Self, u8) -> String) -> String {
        let level = self.level();
        match self {
            Self::Leaf(text) => text.clone(),
            Self::Prefix("~", a) => format!("~ {}", operand(a, level + 1)),
            Self::Prefix(name, a) => format!("{name} {}", operand(a, level)),
            Self::Infix(name, a, b) => {
                // Comparisons do not chain; all others group from the left.
                let left = if level == 5 { 6 } else { level };
                format!("{} {name} {}", operand(a, left), operand(b, level + 1))
            }
            Self::Test(a, test) => format!("{} {test}", operand(a, level)),
            Self::Call(name, arguments) => {
                let shown: Vec<_> = arguments.iter().map(|a| operand(a, 0)).collect();
                format!("{name}({})", shown.join(", "))
            }
            Self::Case(branches, rest) => {
                let mut text = "case".to_owned();
                for (condition, value) in branches {
                    text += &format!(" when {} then {}", operand(condition, 0), operand(value, 0));
                }
                if let Some(rest) = rest {
                    text += &format!(" else {}", operand(rest, 0));
                }
                text + " end"
            }
        }
    }

    /// Its value, computed by walking the tree; nothing where there is none.
    pub(super) fn value(&self, random: &mut Random) -> Option<Value> {
        match self {
            Self::Leaf(text) => value_of_text(given(text).as_bytes()).ok(),
            Self::Prefix("-", a) => infix("-", Value::Int(0), a.value(random)?),
            Self::Prefix("~", a) => infix("#", Value::Int(-1), a.value(random)?),
            Self::Prefix("not", a) => negated(a.value(random)?),
            Self::Prefix(_, a) => a.value(random),
            Self::Infix("and", a, b) => logic(false, a, b, random),
            Self::Infix("or", a, b) => logic(true, a, b, random),
            Self::Infix(name @ (">" | ">="), a, b) => {
                let (right, left) = (b.value(random)?, a.value(random)?);
                infix(if *name == ">" { "<" } else { "<=" }, right, left)
            }
            Self::Infix(name, a, b) => {
                let (left, right) = (a.value(random)?, b.value(random)?);
                infix(name, left, right)
            }
            Self::Test(a, test) => Some(Value::Bool(holds(a.value(random)?, test))),
            Self::Call(name, arguments) => {
                let values: Option<Vec<_>> = arguments.iter().map(|a| a.value(random)).collect();
                called(name, &values?, random)
            }
            Self::Case(branches, rest) => {
                for (condition, value) in branches {
                    if condition.value(random)?.is_true() {
                        return value.value(random);
                    }
                }
                rest.as_ref().map_or(Some(Value::Null), |rest| rest.value(random))
            }
        }
    }
}

/// The text of a leaf, or of the variable that it names.
fn given(leaf: &str) -> &str {
    match leaf {
        ":i" => "42",
        ":d" => "2.5",
        ":t" => "yes",
        ":z" => "null",
        constant => constant,
    }
}

fn negated(value: Value) -> Option<Value> {
    match value {
        Value::Null => Some(Value::Null),
        Value::Bool(value) => Some(Value::Bool(!value)),
        _ => None,
    }
}

fn logic(deciding: bool, a: &Tree, b: &Tree, random: &mut Random) -> Option<Value> {
    match a.value(random)? {
        Value::Null => Some(Value::Null),
        Value::Bool(value) if value == deciding => Some(Value::Bool(value)),
        Value::Bool(_) => {
            let right = b.value(random)?;
            matches!(right, Value::Null | Value::Bool(_)).then_some(right)
        }
        _ => None,
    }
}

fn holds(value: Value, test: &str) -> bool {
    match test {
        "is null" | "isnull" => value == Value::Null,
        "is true" => value == Value::Bool(true),
        _ => value != Value::Null,
    }
}

#[expect(clippy::float_cmp, reason = "the language compares doubles exactly")]
fn infix(name: &str, left: Value, right: Value) -> Option<Value> {
    use Value::{Bool, Double, Null};
    Some(match (left, right) {
        (Null, _) | (_, Null) => Null,
        (Bool(a), Bool(b)) if name == "=" => Bool(a == b),
        (Bool(a), Bool(b)) if matches!(name, "<>" | "!=") => Bool(a != b),
        (Double(_), _) | (_, Double(_)) if "+-*/=<><=!=".contains(name) && name != "<<" => {
            let (a, b) = (left.double().ok()?, right.double().ok()?);
            match name {
                "+" => Double(a + b),
                "-" => Double(a - b),
                "*" => Double(a * b),
                "/" => Double(a / b),
                "=" => Bool(a == b),
                "<" => Bool(a < b),
                "<=" => Bool(a <= b),
                _ => Bool(a != b),
            }
        }
        _ => {
            let (a, b) = (i128::from(left.int().ok()?), i128::from(right.int().ok()?));
            return whole(name, a, b);
        }
    })
}

/// Integers, in more bits than they need.
fn whole(name: &str, a: i128, b: i128) -> Option<Value> {
    let shift = b.rem_euclid(64);
    let result = match name {
        "+" => a + b,
        "-" => a - b,
        "*" => a * b,
        "/" if b != 0 => a / b,
        "%" if b != 0 => a % b,
        "&" => a & b,
        "|" => a | b,
        "#" => a ^ b,
        "<<" => i128::from(i64::try_from(a).ok()? << shift),
        ">>" => a >> shift,
        "=" => return Some(Value::Bool(a == b)),
        "<" => return Some(Value::Bool(a < b)),
        "<=" => return Some(Value::Bool(a <= b)),
        "<>" | "!=" => return Some(Value::Bool(a != b)),
        _ => return None,
    };
    i64::try_from(result).ok().map(Value::Int)
}

fn called(name: &str, values: &[Value], random: &mut Random) -> Option<Value> {
    use super::super::hash;
    if name == "debug" {
        return Some(values[0]);
    }
    if values.contains(&Value::Null) {
        return Some(Value::Null);
    }
    let int = |n: usize| values[n].int().ok();
    Some(match name {
        "abs" => match values[0] {
            Value::Double(value) => Value::Double(if value < 0.0 { -value } else { value }),
            _ => Value::Int(int(0)?.wrapping_abs()),
        },
        "int" => Value::Int(int(0)?),
        "double" => Value::Double(values[0].double().ok()?),
        "mod" => return infix("%", values[0], values[1]),
        "pi" => Value::Double(std::f64::consts::PI),
        "hash" => Value::Int(hash::murmur2(int(0)?, int(1)?)),
        "hash_fnv1a" => Value::Int(hash::fnv1a(int(0)?, int(1)?)),
        "permute" => match (int(0)?, int(1)?, int(2)?) {
            (_, ..=0, _) => return None,
            (value, size, seed) => Value::Int(hash::permute(value, size, seed)),
        },
        "random" => match (int(0)?, int(1)?) {
            (low, high) if low > high || high.checked_sub(low)? == i64::MAX => return None,
            (low, high) => Value::Int(random.uniform(low, high)),
        },
        _ if values.iter().any(|value| matches!(value, Value::Double(_))) => {
            let mut best = values[0].double().ok()?;
            for value in &values[1..] {
                let next = value.double().ok()?;
                let stays = if name == "least" { best < next } else { best > next };
                best = if stays { best } else { next };
            }
            Value::Double(best)
        }
        _ => {
            let all: Option<Vec<_>> = (0..values.len()).map(int).collect();
            let all = all?.into_iter();
            Value::Int(if name == "least" { all.min()? } else { all.max()? })
        }
    })
}
