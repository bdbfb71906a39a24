//! The grammar of expressions: operators wait on an explicit stack until their right side is
//! complete, so neither long nor deep expressions can exhaust the call stack.

use super::Names;
use super::eval::Value;
use super::functions::{Function, Operator};
use super::lex::{Keyword, Lexer, SyntaxError, Token};
use super::program::{Builder, Draw, Op, Program};

/// How many operators, parentheses, calls and CASEs may wait for their ends at once.
const NESTING_MAX: usize = 10_000;
/// How many arguments a function takes at most, as in pgbench.
pub(super) const ARGUMENTS_MAX: usize = 16;

/// Compiles the expression from where `lexer` stands to the end of the command, and passes it.
///
/// Of several faults in one line the one that pgbench names is given: it reads the rest of the
/// line before it speaks, and a character that it cannot read there is what it speaks of.
pub(super) fn expression(lexer: &mut Lexer<'_>, names: &mut Names) -> Result<Program, SyntaxError> {
    let mut parser = Parser {
        lexer,
        names,
        builder: Builder::default(),
        waiting: Vec::new(),
        operands: Vec::new(),
    };
    parser.parse().map_err(|fault| {
        let mut fault = fault;
        loop {
            match parser.lexer.token() {
                Ok(Token::End) => return fault,
                Ok(_) => {}
                Err(later) => fault = later,
            }
        }
    })?;
    Ok(parser.builder.finish())
}

/// How tightly an operator binds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    Or,
    And,
    Not,
    Is,
    Comparison,
    Bits,
    Sum,
    Product,
    Sign,
}

/// What a name in front of parentheses is.
#[derive(Debug, Clone, Copy)]
enum Callee {
    Operator(Operator),
    Function(Function),
    Draw(Draw),
    Debug,
}

/// A callee by its name, with the fewest and most arguments.
#[derive(Debug)]
struct Signature {
    name: &'static str,
    callee: Callee,
    least: usize,
    most: usize,
}

const fn function(name: &'static str, function: Function, least: usize, most: usize) -> Signature {
    Signature { name, callee: Callee::Function(function), least, most }
}

const fn draw(name: &'static str, draw: Draw) -> Signature {
    let arguments = draw.arguments();
    Signature { name, callee: Callee::Draw(draw), least: arguments, most: arguments }
}

static SIGNATURES: [Signature; 21] = [
    function("abs", Function::Abs, 1, 1),
    Signature { name: "debug", callee: Callee::Debug, least: 1, most: 1 },
    function("double", Function::Double, 1, 1),
    function("exp", Function::Exp, 1, 1),
    function("greatest", Function::Greatest, 1, ARGUMENTS_MAX),
    function("hash", Function::HashMurmur2, 1, 2),
    function("hash_fnv1a", Function::HashFnv1a, 1, 2),
    function("hash_murmur2", Function::HashMurmur2, 1, 2),
    function("int", Function::Int, 1, 1),
    function("least", Function::Least, 1, ARGUMENTS_MAX),
    function("ln", Function::Ln, 1, 1),
    Signature { name: "mod", callee: Callee::Operator(Operator::Modulo), least: 2, most: 2 },
    function("permute", Function::Permute, 2, 3),
    function("pi", Function::Pi, 0, 0),
    function("pow", Function::Pow, 2, 2),
    function("power", Function::Pow, 2, 2),
    draw("random", Draw::Uniform),
    draw("random_exponential", Draw::Exponential),
    draw("random_gaussian", Draw::Gaussian),
    draw("random_zipfian", Draw::Zipfian),
    function("sqrt", Function::Sqrt, 1, 1),
];

/// What waits for more.
#[derive(Debug)]
enum Waiting {
    /// An operator for its right side. `>` is `<` with its sides swapped.
    Operator { operator: Operator, level: Level, is_swapped: bool },
    /// NOT for its operand.
    Not,
    /// AND or OR, with the place of its jump.
    Logic { level: Level, jump: usize },
    /// `(` for `)`.
    Group,
    /// A call for its arguments and `)`.
    Call { signature: &'static Signature, arguments: usize },
    /// A CASE.
    Case { stage: Stage, ends: Vec<usize> },
}

/// What part of a CASE is being read.
#[derive(Debug, Clone, Copy)]
enum Stage {
    Condition,
    /// With the place of the jump to the next branch.
    Value(usize),
    Otherwise,
}

impl Waiting {
    /// How tightly it binds, if it is an operator.
    fn level(&self) -> Option<Level> {
        match self {
            Self::Operator { level, .. } | Self::Logic { level, .. } => Some(*level),
            Self::Not => Some(Level::Not),
            Self::Group | Self::Call { .. } | Self::Case { .. } => None,
        }
    }
}

/// What may come next.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Expect {
    Operand,
    Operator,
    Nothing,
}

struct Parser<'a, 'l> {
    lexer: &'l mut Lexer<'a>,
    names: &'l mut Names,
    builder: Builder,
    waiting: Vec<Waiting>,
    /// Where the code of each complete operand begins.
    operands: Vec<usize>,
}

impl<'a> Parser<'a, '_> {
    fn parse(&mut self) -> Result<(), SyntaxError> {
        let mut expect = Expect::Operand;
        while expect != Expect::Nothing {
            let token = self.lexer.token()?;
            expect = match expect {
                Expect::Operand => self.operand(token)?,
                _ => self.operator(token)?,
            };
        }
        Ok(())
    }

    fn fault<T>(&self, message: impl Into<String>) -> Result<T, SyntaxError> {
        Err(self.lexer.fault(message.into()))
    }

    fn syntax<T>(&self) -> Result<T, SyntaxError> {
        self.fault("syntax error")
    }

    fn wait(&mut self, waiting: Waiting) -> Result<Expect, SyntaxError> {
        if self.waiting.len() >= NESTING_MAX {
            return self.fault("expression nests too deeply");
        }
        self.waiting.push(waiting);
        Ok(Expect::Operand)
    }

    /// An operand of one operation.
    fn atom(&mut self, op: Op) -> Expect {
        self.operands.push(self.builder.here());
        self.builder.push(op);
        Expect::Operator
    }

    /// Takes what an operand begins with.
    fn operand(&mut self, token: Token<'a>) -> Result<Expect, SyntaxError> {
        match token {
            Token::Int(value) => Ok(self.atom(Op::Constant(Value::Int(value)))),
            Token::Double(value) => Ok(self.atom(Op::Constant(Value::Double(value)))),
            Token::Variable(name) => {
                let slot = self.names.slot(name);
                Ok(self.atom(Op::Variable(slot)))
            }
            Token::Keyword(Keyword::Null) => Ok(self.atom(Op::Constant(Value::Null))),
            Token::Keyword(Keyword::True) => Ok(self.atom(Op::Constant(Value::Bool(true)))),
            Token::Keyword(Keyword::False) => Ok(self.atom(Op::Constant(Value::Bool(false)))),
            Token::Keyword(Keyword::Not) => self.wait(Waiting::Not),
            Token::Keyword(Keyword::Case) => self.case(),
            Token::Operator(Operator::Add) => Ok(Expect::Operand),
            Token::Operator(Operator::Subtract) => self.minus(),
            Token::Tilde => {
                // It binds no more tightly than the other operators on bits.
                self.atom(Op::Constant(Value::Int(-1)));
                self.prefix(Operator::BitXor, Level::Bits)
            }
            Token::Open => self.wait(Waiting::Group),
            Token::Function(name) => self.call(name),
            _ => self.syntax(),
        }
    }

    /// `-x` is `0 - x`.
    fn minus(&mut self) -> Result<Expect, SyntaxError> {
        let before = self.lexer.clone();
        if self.lexer.token() == Ok(Token::TwoTo63) {
            return Ok(self.atom(Op::Constant(Value::Int(i64::MIN))));
        }
        *self.lexer = before;
        self.atom(Op::Constant(Value::Int(0)));
        self.prefix(Operator::Subtract, Level::Sign)
    }

    fn prefix(&mut self, operator: Operator, level: Level) -> Result<Expect, SyntaxError> {
        self.wait(Waiting::Operator { operator, level, is_swapped: false })
    }

    fn case(&mut self) -> Result<Expect, SyntaxError> {
        self.operands.push(self.builder.here());
        if self.lexer.token()? != Token::Keyword(Keyword::When) {
            return self.syntax();
        }
        self.wait(Waiting::Case { stage: Stage::Condition, ends: Vec::new() })
    }

    fn call(&mut self, name: &[u8]) -> Result<Expect, SyntaxError> {
        let known = |s: &&Signature| s.name.as_bytes().eq_ignore_ascii_case(name);
        let Some(signature) = SIGNATURES.iter().find(known) else {
            let name = String::from_utf8_lossy(name);
            return self.fault(format!("unexpected function name ({name})"));
        };
        if self.lexer.token()? != Token::Open {
            return self.syntax();
        }
        let before = self.lexer.clone();
        match self.lexer.token()? {
            Token::Close => self.called(signature, 0),
            // pgbench's grammar has an empty list of arguments in front of the comma.
            Token::Comma => self.wait(Waiting::Call { signature, arguments: 0 }),
            _ => {
                *self.lexer = before;
                self.wait(Waiting::Call { signature, arguments: 0 })
            }
        }
    }

    /// A call is complete.
    fn called(&mut self, signature: &Signature, given: usize) -> Result<Expect, SyntaxError> {
        let Signature { name, callee, least, most } = signature;
        let is_variadic = *most == ARGUMENTS_MAX;
        if is_variadic && given == 0 {
            return self.fault(format!("at least one argument expected ({name})"));
        }
        if given < *least || (given > *most && !is_variadic) {
            return self.fault(format!("unexpected number of arguments ({name})"));
        }
        let mut count = given;
        if !is_variadic && given < *most {
            let slot = self.names.slot(b"default_seed");
            self.atom(Op::Variable(slot));
            count += 1;
        }
        let start = match count {
            0 => self.builder.here(),
            count => self.operands[self.operands.len() - count],
        };
        self.operands.truncate(self.operands.len() - count);
        self.operands.push(start);
        match callee {
            // pgbench finds this out when it computes it.
            _ if count > ARGUMENTS_MAX => {
                let count = u32::try_from(count).expect("fewer than 2^32 arguments");
                self.builder.push(Op::TooMany(count));
            }
            Callee::Operator(operator) => self.builder.operate(*operator),
            Callee::Function(function) => {
                let count = u8::try_from(count).expect("at most 16 arguments");
                self.builder.call(*function, count);
            }
            Callee::Draw(draw) => self.builder.draw(*draw),
            Callee::Debug => self.builder.push(Op::Debug),
        }
        Ok(Expect::Operator)
    }

    /// Takes what may follow an operand.
    fn operator(&mut self, token: Token<'a>) -> Result<Expect, SyntaxError> {
        match token {
            Token::End => self.end(),
            Token::Operator(operator) => self.infix(operator, false),
            Token::Greater => self.infix(Operator::Less, true),
            Token::GreaterOrEqual => self.infix(Operator::LessOrEqual, true),
            Token::Keyword(Keyword::And) => self.logic(Level::And),
            Token::Keyword(Keyword::Or) => self.logic(Level::Or),
            Token::Keyword(Keyword::IsNull) => self.is(Value::Null, false),
            Token::Keyword(Keyword::NotNull) => self.is(Value::Null, true),
            Token::Keyword(Keyword::Is) => self.is_something(),
            Token::Close => self.close(),
            Token::Comma => self.comma(),
            Token::Keyword(keyword) => self.in_case(keyword),
            _ => self.syntax(),
        }
    }

    fn infix(&mut self, operator: Operator, is_swapped: bool) -> Result<Expect, SyntaxError> {
        let level = level(operator);
        if level == Level::Comparison {
            self.complete(Level::Bits);
            if self.last_level() == Some(level) {
                return self.syntax();
            }
        }
        self.complete(level);
        self.wait(Waiting::Operator { operator, level, is_swapped })
    }

    fn logic(&mut self, level: Level) -> Result<Expect, SyntaxError> {
        self.complete(level);
        let jump = self.builder.here();
        self.builder.push(if level == Level::And { Op::And(0) } else { Op::Or(0) });
        self.wait(Waiting::Logic { level, jump })
    }

    fn is_something(&mut self) -> Result<Expect, SyntaxError> {
        let mut token = self.lexer.token()?;
        let is_negated = token == Token::Keyword(Keyword::Not);
        if is_negated {
            token = self.lexer.token()?;
        }
        match token {
            Token::Keyword(Keyword::Null) => self.is(Value::Null, is_negated),
            Token::Keyword(Keyword::True) => self.is(Value::Bool(true), is_negated),
            Token::Keyword(Keyword::False) => self.is(Value::Bool(false), is_negated),
            _ => self.syntax(),
        }
    }

    fn is(&mut self, constant: Value, is_negated: bool) -> Result<Expect, SyntaxError> {
        self.complete(Level::Is);
        self.builder.constant(constant);
        self.builder.call(Function::Is, 2);
        if is_negated {
            self.builder.call(Function::Not, 1);
        }
        Ok(Expect::Operator)
    }

    fn last_level(&self) -> Option<Level> {
        self.waiting.last().and_then(Waiting::level)
    }

    /// Builds the operators that wait and bind at least as tightly as `level`.
    fn complete(&mut self, level: Level) {
        while self.last_level() >= Some(level) {
            self.complete_one();
        }
    }

    /// Builds every operator that waits for the operand that is complete now.
    fn complete_all(&mut self) {
        while self.last_level().is_some() {
            self.complete_one();
        }
    }

    fn complete_one(&mut self) {
        match self.waiting.pop() {
            Some(Waiting::Not) => self.builder.call(Function::Not, 1),
            Some(Waiting::Logic { jump, .. }) => {
                self.operands.pop();
                self.builder.push(Op::Check);
                self.builder.land(jump);
            }
            Some(Waiting::Operator { operator, is_swapped, .. }) => {
                let right = self.operands.pop().expect("an operator has a right side");
                if is_swapped {
                    let left = *self.operands.last().expect("an operator has a left side");
                    self.builder.swap(left, right);
                }
                self.builder.operate(operator);
            }
            other => unreachable!("no operator waits: {other:?}"),
        }
    }

    fn end(&mut self) -> Result<Expect, SyntaxError> {
        self.complete_all();
        if self.waiting.is_empty() { Ok(Expect::Nothing) } else { self.syntax() }
    }

    fn close(&mut self) -> Result<Expect, SyntaxError> {
        self.complete_all();
        match self.waiting.pop() {
            Some(Waiting::Group) => Ok(Expect::Operator),
            Some(Waiting::Call { signature, arguments }) => self.called(signature, arguments + 1),
            _ => self.syntax(),
        }
    }

    fn comma(&mut self) -> Result<Expect, SyntaxError> {
        self.complete_all();
        match self.waiting.last_mut() {
            Some(Waiting::Call { arguments, .. }) => {
                *arguments += 1;
                Ok(Expect::Operand)
            }
            _ => self.syntax(),
        }
    }

    /// THEN, WHEN, ELSE and END.
    fn in_case(&mut self, keyword: Keyword) -> Result<Expect, SyntaxError> {
        self.complete_all();
        let Some(Waiting::Case { stage, ends }) = self.waiting.last_mut() else {
            return self.syntax();
        };
        let here = self.builder.here();
        match (*stage, keyword) {
            (Stage::Condition, Keyword::Then) => {
                self.operands.pop();
                self.builder.push(Op::Branch(0));
                *stage = Stage::Value(here);
                return Ok(Expect::Operand);
            }
            (Stage::Value(branch), Keyword::When | Keyword::Else | Keyword::End) => {
                self.operands.pop();
                self.builder.push(Op::Jump(0));
                self.builder.land(branch);
                ends.push(here);
            }
            (Stage::Otherwise, Keyword::End) => {
                self.operands.pop();
            }
            _ => return self.syntax(),
        }
        match keyword {
            Keyword::When => *stage = Stage::Condition,
            Keyword::Else => *stage = Stage::Otherwise,
            _ => {
                if let Stage::Value(_) = stage {
                    self.builder.constant(Value::Null);
                }
                for &end in ends.iter() {
                    self.builder.land(end);
                }
                self.waiting.pop();
                return Ok(Expect::Operator);
            }
        }
        Ok(Expect::Operand)
    }
}

fn level(operator: Operator) -> Level {
    match operator {
        Operator::Equal | Operator::NotEqual | Operator::Less | Operator::LessOrEqual => {
            Level::Comparison
        }
        Operator::BitAnd
        | Operator::BitOr
        | Operator::BitXor
        | Operator::ShiftLeft
        | Operator::ShiftRight => Level::Bits,
        Operator::Add | Operator::Subtract => Level::Sum,
        Operator::Multiply | Operator::Divide | Operator::Modulo => Level::Product,
    }
}
