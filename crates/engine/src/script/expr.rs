//! The grammar of expressions: precedence climbing over `lex`'s tokens.

use super::eval::Value;
use super::lex::{Fault, Token, tokens};
use super::{Expr, Function, Names};

/// How deep an expression may nest, so that hostile input cannot exhaust the stack.
const DEPTH_MAX: usize = 200;
/// How many arguments a function takes at most, as in pgbench.
const ARGUMENTS_MAX: usize = 16;

/// The expression that the whole of `text` is.
pub(super) fn expression(text: &str, names: &mut Names) -> Result<Expr, Fault> {
    let mut parser =
        Parser { tokens: tokens(text)?, next: 0, end: text.trim_end().len(), depth: 0, names };
    let parsed = parser.binary(0)?;
    match parser.tokens.get(parser.next) {
        None => Ok(parsed),
        Some((at, _)) => Err(Fault::new(*at, "syntax error")),
    }
}

/// A binary operator: its spelling, precedence, whether it chains, and its function.
/// `a > b` is `b < a`, so it is told apart by `swapped`.
struct Operator {
    symbol: &'static str,
    level: u8,
    chains: bool,
    swapped: bool,
    function: Function,
}

const fn operator(symbol: &'static str, level: u8, function: Function) -> Operator {
    Operator { symbol, level, chains: level != COMPARISON, swapped: false, function }
}

const fn swapped(symbol: &'static str, function: Function) -> Operator {
    Operator { symbol, level: COMPARISON, chains: false, swapped: true, function }
}

const NOT: u8 = 3;
const IS: u8 = 4;
const COMPARISON: u8 = 5;
const BITS: u8 = 6;

static OPERATORS: [Operator; 19] = [
    operator("or", 1, Function::Or),
    operator("and", 2, Function::And),
    operator("<", COMPARISON, Function::Less),
    operator("<=", COMPARISON, Function::LessOrEqual),
    operator("=", COMPARISON, Function::Equal),
    operator("<>", COMPARISON, Function::NotEqual),
    operator("!=", COMPARISON, Function::NotEqual),
    swapped(">", Function::Less),
    swapped(">=", Function::LessOrEqual),
    operator("|", BITS, Function::BitOr),
    operator("#", BITS, Function::BitXor),
    operator("&", BITS, Function::BitAnd),
    operator("<<", BITS, Function::ShiftLeft),
    operator(">>", BITS, Function::ShiftRight),
    operator("+", 7, Function::Add),
    operator("-", 7, Function::Subtract),
    operator("*", 8, Function::Multiply),
    operator("/", 8, Function::Divide),
    operator("%", 8, Function::Modulo),
];

/// Functions by name: how many arguments, at least and at most.
fn function(name: &str) -> Option<(Function, usize, usize)> {
    Some(match name {
        "abs" => (Function::Abs, 1, 1),
        "double" => (Function::Double, 1, 1),
        "exp" => (Function::Exp, 1, 1),
        "greatest" => (Function::Greatest, 1, ARGUMENTS_MAX),
        "int" => (Function::Int, 1, 1),
        "least" => (Function::Least, 1, ARGUMENTS_MAX),
        "ln" => (Function::Ln, 1, 1),
        "mod" => (Function::Modulo, 2, 2),
        "pi" => (Function::Pi, 0, 0),
        "pow" | "power" => (Function::Pow, 2, 2),
        "random" => (Function::Random, 2, 2),
        "random_exponential" => (Function::RandomExponential, 3, 3),
        "random_gaussian" => (Function::RandomGaussian, 3, 3),
        "random_zipfian" => (Function::RandomZipfian, 3, 3),
        "sqrt" => (Function::Sqrt, 1, 1),
        _ => return None,
    })
}

struct Parser<'a> {
    tokens: Vec<(usize, Token)>,
    next: usize,
    end: usize,
    depth: usize,
    names: &'a mut Names,
}

impl Parser<'_> {
    fn at(&self) -> usize {
        self.tokens.get(self.next).map_or(self.end, |(at, _)| *at)
    }

    fn fault<T>(&self, message: &str) -> Result<T, Fault> {
        Err(Fault::new(self.at(), message))
    }

    /// The next token if it is this symbol or word.
    fn accept(&mut self, wanted: &str) -> bool {
        let found = match self.tokens.get(self.next) {
            Some((_, Token::Symbol(symbol))) => *symbol == wanted,
            Some((_, Token::Word(word))) => word == wanted,
            _ => false,
        };
        self.next += usize::from(found);
        found
    }

    fn expect(&mut self, wanted: &str) -> Result<(), Fault> {
        if self.accept(wanted) { Ok(()) } else { self.fault("syntax error") }
    }

    /// An expression whose operators all bind at least as tightly as `level`.
    fn binary(&mut self, level: u8) -> Result<Expr, Fault> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return self.fault("expression nests too deeply");
        }
        let mut left = if level <= NOT && self.accept("not") {
            Expr::Call(Function::Not, vec![self.binary(NOT)?])
        } else {
            self.unary()?
        };
        let mut ceiling = u8::MAX;
        loop {
            if level <= IS && ceiling > IS && self.postfix(&mut left)? {
                ceiling = IS;
                continue;
            }
            let Some(operator) = self.operator(level, ceiling) else {
                break;
            };
            let right = self.binary(operator.level + 1)?;
            let arguments = if operator.swapped { vec![right, left] } else { vec![left, right] };
            left = Expr::Call(operator.function, arguments);
            ceiling = if operator.chains { operator.level + 1 } else { operator.level };
        }
        self.depth -= 1;
        Ok(left)
    }

    /// Takes the next token if it is an operator of a level in `level..ceiling`.
    fn operator(&mut self, level: u8, ceiling: u8) -> Option<&'static Operator> {
        let spelled = match &self.tokens.get(self.next)?.1 {
            Token::Symbol(symbol) => *symbol,
            Token::Word(word) if word == "or" => "or",
            Token::Word(word) if word == "and" => "and",
            _ => return None,
        };
        let found = OPERATORS.iter().find(|o| o.symbol == spelled)?;
        let fits = found.level >= level && found.level < ceiling;
        self.next += usize::from(fits);
        fits.then_some(found)
    }

    /// `IS [NOT] NULL|TRUE|FALSE`, `ISNULL`, `NOTNULL` behind `left`.
    fn postfix(&mut self, left: &mut Expr) -> Result<bool, Fault> {
        let (negated, constant) = if self.accept("isnull") {
            (false, Value::Null)
        } else if self.accept("notnull") {
            (true, Value::Null)
        } else if self.accept("is") {
            (self.accept("not"), self.constant_word()?)
        } else {
            return Ok(false);
        };
        let subject = std::mem::replace(left, Expr::Constant(Value::Null));
        let test = Expr::Call(Function::Is, vec![subject, Expr::Constant(constant)]);
        *left = if negated { Expr::Call(Function::Not, vec![test]) } else { test };
        Ok(true)
    }

    fn constant_word(&mut self) -> Result<Value, Fault> {
        if self.accept("null") {
            Ok(Value::Null)
        } else if self.accept("true") {
            Ok(Value::Bool(true))
        } else if self.accept("false") {
            Ok(Value::Bool(false))
        } else {
            self.fault("syntax error")
        }
    }

    fn unary(&mut self) -> Result<Expr, Fault> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return self.fault("expression nests too deeply");
        }
        let parsed = if self.accept("-") {
            self.negative()
        } else if self.accept("+") {
            self.unary()
        } else if self.accept("~") {
            let operand = self.unary()?;
            Ok(Expr::Call(Function::BitXor, vec![Expr::Constant(Value::Int(-1)), operand]))
        } else {
            self.primary()
        };
        self.depth -= 1;
        parsed
    }

    /// What follows a minus: the one place where 2^63 may stand.
    fn negative(&mut self) -> Result<Expr, Fault> {
        if matches!(self.tokens.get(self.next), Some((_, Token::Int(value))) if *value == 1 << 63) {
            self.next += 1;
            return Ok(Expr::Constant(Value::Int(i64::MIN)));
        }
        let operand = self.unary()?;
        Ok(Expr::Call(Function::Subtract, vec![Expr::Constant(Value::Int(0)), operand]))
    }

    fn primary(&mut self) -> Result<Expr, Fault> {
        let Some((at, token)) = self.tokens.get(self.next).cloned() else {
            return self.fault("syntax error");
        };
        self.next += 1;
        match token {
            Token::Int(value) => i64::try_from(value)
                .map(|value| Expr::Constant(Value::Int(value)))
                .map_err(|_| Fault::new(at, format!("bigint constant overflow ({value})"))),
            Token::Double(value) => Ok(Expr::Constant(Value::Double(value))),
            Token::Variable(name) => Ok(Expr::Variable(self.names.slot(&name))),
            Token::Symbol("(") => {
                let inner = self.binary(0)?;
                self.expect(")")?;
                Ok(inner)
            }
            Token::Word(word) => self.word(at, &word),
            Token::Symbol(_) => Err(Fault::new(at, "syntax error")),
        }
    }

    fn word(&mut self, at: usize, word: &str) -> Result<Expr, Fault> {
        match word {
            "null" => Ok(Expr::Constant(Value::Null)),
            "true" => Ok(Expr::Constant(Value::Bool(true))),
            "false" => Ok(Expr::Constant(Value::Bool(false))),
            "case" => self.case(),
            name => self.call(at, name),
        }
    }

    fn case(&mut self) -> Result<Expr, Fault> {
        let mut branches = Vec::new();
        self.expect("when")?;
        loop {
            let condition = self.binary(0)?;
            self.expect("then")?;
            branches.push((condition, self.binary(0)?));
            if !self.accept("when") {
                break;
            }
        }
        let otherwise =
            if self.accept("else") { self.binary(0)? } else { Expr::Constant(Value::Null) };
        self.expect("end")?;
        Ok(Expr::Case(branches, Box::new(otherwise)))
    }

    fn call(&mut self, at: usize, name: &str) -> Result<Expr, Fault> {
        let Some((function, least, most)) = function(name) else {
            return Err(Fault::new(at, format!("unexpected function name ({name})")));
        };
        self.expect("(")?;
        let mut arguments = Vec::new();
        if !self.accept(")") {
            loop {
                arguments.push(self.binary(0)?);
                if !self.accept(",") {
                    break;
                }
            }
            self.expect(")")?;
        }
        if arguments.len() > ARGUMENTS_MAX {
            let message = format!("too many function arguments, maximum is {ARGUMENTS_MAX}");
            return Err(Fault::new(at, message));
        }
        if arguments.is_empty() && least == 1 && most == ARGUMENTS_MAX {
            return Err(Fault::new(at, format!("at least one argument expected ({name})")));
        }
        if arguments.len() < least || arguments.len() > most {
            return Err(Fault::new(at, format!("unexpected number of arguments ({name})")));
        }
        Ok(Expr::Call(function, arguments))
    }
}
