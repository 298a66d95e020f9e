//! Reads Jepsen's EDN histories: one map per line, or a vector of maps.
//!
//! EDN as in <https://github.com/edn-format/edn>; tags are skipped (`#jepsen.history.Op{..}` is its map), `#_`
//! discards. Events whose process is no number (`:nemesis`) are not client operations and are left out.

use super::event::{Event, Kind, Pairing};
use super::form::Form;
use super::{History, ParseError};

/// Nesting that no history has; deeper input is refused instead of overflowing the stack.
const MAX_DEPTH: usize = 64;

/// Reads a history.
pub fn parse(text: &str) -> Result<History, ParseError> {
    let mut reader = Reader::new(text, 1);
    let mut pairing = Pairing::default();
    while let Some((form, line, column)) = reader.next_form()? {
        match form {
            Form::Map(_) => push(&mut pairing, &form, line, column)?,
            Form::List(items) => {
                let places = std::mem::take(&mut reader.item_places);
                for (i, item) in items.iter().enumerate() {
                    let (line, column) = places.get(i).copied().unwrap_or((line, column));
                    push(&mut pairing, item, line, column)?;
                }
            }
            other => {
                let message =
                    format!("{other} is no event; expected a map like {{:type :invoke, :f :read, ...}}");
                return Err(ParseError { line, column, message });
            }
        }
    }
    Ok(pairing.finish())
}

fn push(pairing: &mut Pairing, form: &Form, line: usize, column: usize) -> Result<(), ParseError> {
    let error = |message: String| ParseError { line, column, message };
    let Form::Map(pairs) = form else {
        return Err(error(format!(
            "{form} is no event; expected a map like {{:type :invoke, :f :read, ...}}"
        )));
    };
    let field = |name: &str| {
        pairs
            .iter()
            .find(|(key, _)| matches!(key, Form::Keyword(k) if k[1..] == *name))
            .map(|(_, value)| value)
    };
    let process = match field("process") {
        Some(Form::Int(process)) => u64::try_from(*process)
            .map_err(|_| error(format!(":process is {process}; expected a number from 0, or :nemesis")))?,
        Some(_) => return Ok(()),
        None => return Err(error("an event without :process".to_owned())),
    };
    let kind = match field("type").map(|t| (t, t.name().and_then(Kind::parse))) {
        Some((_, Some(kind))) => kind,
        Some((other, None)) => {
            return Err(error(format!(":type is {other}; expected :invoke, :ok, :fail or :info")));
        }
        None => {
            return Err(error("an event without :type; expected :invoke, :ok, :fail or :info".to_owned()));
        }
    };
    let f = match field("f").map(|f| (f, f.name())) {
        Some((_, Some(name))) => name.to_owned(),
        Some((other, None)) => return Err(error(format!(":f is {other}; expected a keyword like :read"))),
        None => return Err(error("an event without :f; expected a keyword like :read".to_owned())),
    };
    let time = match field("time") {
        Some(Form::Int(time)) => u64::try_from(*time).ok(),
        _ => None,
    };
    pairing.push(Event {
        kind,
        process,
        f,
        key: field("key").filter(|k| **k != Form::Nil).map(Form::to_key),
        value: field("value").cloned().unwrap_or(Form::Nil),
        time,
        error: field("error").filter(|e| **e != Form::Nil).map(Form::to_key),
        line,
        column,
    })
}

/// A reader of EDN forms that knows where it is.
pub(super) struct Reader<'a> {
    rest: std::str::Chars<'a>,
    line: usize,
    column: usize,
    /// Where the elements of the outermost list read last began.
    item_places: Vec<(usize, usize)>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(text: &'a str, line: usize) -> Self {
        Reader { rest: text.chars(), line, column: 1, item_places: Vec::new() }
    }

    /// The next form with the line and column of its first character; `None` at the end of the text.
    pub(super) fn next_form(&mut self) -> Result<Option<(Form, usize, usize)>, ParseError> {
        self.skip_blanks(0)?;
        if self.peek().is_none() {
            return Ok(None);
        }
        let (line, column) = (self.line, self.column);
        Ok(Some((self.form(0)?, line, column)))
    }

    fn peek(&self) -> Option<char> {
        self.rest.clone().next()
    }

    fn bump(&mut self) -> Option<char> {
        let c = self.rest.next()?;
        if c == '\n' {
            self.line += 1;
            self.column = 1;
        } else {
            self.column += 1;
        }
        Some(c)
    }

    fn error(&self, message: impl Into<String>) -> ParseError {
        ParseError { line: self.line, column: self.column, message: message.into() }
    }

    /// Skips white space (commas are), comments and discarded forms.
    fn skip_blanks(&mut self, depth: usize) -> Result<(), ParseError> {
        loop {
            match self.peek() {
                Some(c) if c.is_whitespace() || c == ',' => {
                    self.bump();
                }
                Some(';') => while !matches!(self.bump(), None | Some('\n')) {},
                Some('#') if self.rest.clone().nth(1) == Some('_') => {
                    self.bump();
                    self.bump();
                    self.skip_blanks(depth + 1)?;
                    self.form(depth + 1)?;
                }
                _ => return Ok(()),
            }
        }
    }

    fn form(&mut self, depth: usize) -> Result<Form, ParseError> {
        if depth > MAX_DEPTH {
            return Err(self.error(format!("nested deeper than {MAX_DEPTH}")));
        }
        match self.peek() {
            None => Err(self.error("the text ends where a value is expected")),
            Some('{') => self.map(depth),
            Some('[') => self.sequence(']', depth).map(Form::List),
            Some('(') => self.sequence(')', depth).map(Form::List),
            Some('"') => self.string(),
            Some('#') => self.dispatch(depth),
            Some(c @ (']' | '}' | ')')) => Err(self.error(format!("{c:?} without its opening"))),
            Some(_) => self.atom(),
        }
    }

    /// The forms up to `close`, the opening bracket being next.
    fn sequence(&mut self, close: char, depth: usize) -> Result<Vec<Form>, ParseError> {
        let (line, column) = (self.line, self.column);
        self.bump();
        if depth == 0 {
            self.item_places.clear();
        }
        let mut items = Vec::new();
        loop {
            self.skip_blanks(depth)?;
            match self.peek() {
                Some(c) if c == close => {
                    self.bump();
                    return Ok(items);
                }
                None => {
                    let message = format!(
                        "the text ends inside what was opened in line {line}, column {column}; expected {close:?}"
                    );
                    return Err(self.error(message));
                }
                Some(_) => {
                    if depth == 0 {
                        self.item_places.push((self.line, self.column));
                    }
                    items.push(self.form(depth + 1)?);
                }
            }
        }
    }

    fn map(&mut self, depth: usize) -> Result<Form, ParseError> {
        let (line, column) = (self.line, self.column);
        // The places of a map's parts are of no use, and must not replace those of an outer list.
        let items = self.sequence('}', depth + 1)?;
        if items.len() % 2 != 0 {
            let message = "a map with a key that has no value".to_owned();
            return Err(ParseError { line, column, message });
        }
        let mut pairs = Vec::with_capacity(items.len() / 2);
        let mut items = items.into_iter();
        while let (Some(key), Some(value)) = (items.next(), items.next()) {
            if pairs.iter().any(|(seen, _)| *seen == key) {
                return Err(ParseError { line, column, message: format!("a map with two values for {key}") });
            }
            pairs.push((key, value));
        }
        Ok(Form::Map(pairs))
    }

    fn string(&mut self) -> Result<Form, ParseError> {
        let (line, column) = (self.line, self.column);
        self.bump();
        let mut text = String::new();
        loop {
            match self.bump() {
                Some('"') => return Ok(Form::Text(text)),
                Some('\\') => match self.bump() {
                    Some('n') => text.push('\n'),
                    Some('t') => text.push('\t'),
                    Some('r') => text.push('\r'),
                    Some('u') => text.push(self.unicode_escape()?),
                    Some(c @ ('"' | '\\')) => text.push(c),
                    other => return Err(self.error(format!("unknown escape {other:?} in a string"))),
                },
                Some(c) => text.push(c),
                None => {
                    let message =
                        format!("the text ends inside the string opened in line {line}, column {column}");
                    return Err(self.error(message));
                }
            }
        }
    }

    fn unicode_escape(&mut self) -> Result<char, ParseError> {
        let digits: String = (0..4).filter_map(|_| self.bump()).collect();
        u32::from_str_radix(&digits, 16)
            .ok()
            .and_then(char::from_u32)
            .ok_or_else(|| self.error("expected four hexadecimal digits of a character after \\u"))
    }

    /// After `#`: a set, or a tag whose form stands for itself.
    fn dispatch(&mut self, depth: usize) -> Result<Form, ParseError> {
        self.bump();
        match self.peek() {
            Some('{') => {
                let items = self.sequence('}', depth + 1)?;
                Ok(Form::Other(format!("#{{{}}}", Form::List(items).to_string().trim_matches(['[', ']']))))
            }
            Some(c) if c.is_alphabetic() => {
                while self.peek().is_some_and(is_symbol) {
                    self.bump();
                }
                self.skip_blanks(depth)?;
                self.form(depth + 1)
            }
            _ => Err(self.error("expected a tag, a set or a discarded form after '#'")),
        }
    }

    fn atom(&mut self) -> Result<Form, ParseError> {
        let mut text = String::new();
        if self.peek() == Some('\\') {
            text.extend(self.bump());
            text.extend(self.bump());
        }
        while let Some(c) = self.peek().filter(|c| is_symbol(*c)) {
            text.push(c);
            self.bump();
        }
        Ok(match text.as_str() {
            "" => {
                let found = self.peek().map_or_else(String::new, |c| format!("{c:?}"));
                return Err(self.error(format!("unexpected {found}; expected a value")));
            }
            "nil" => Form::Nil,
            "true" => Form::Bool(true),
            "false" => Form::Bool(false),
            ":" => return Err(self.error("a keyword without a name")),
            _ if text.starts_with(':') => Form::Keyword(text),
            // EDN allows a sign, and N for "arbitrary precision".
            _ => match text.strip_suffix('N').unwrap_or(&text).parse::<i64>() {
                Ok(number) => Form::Int(number),
                Err(_) => Form::Other(text),
            },
        })
    }
}

/// Whether `c` continues a symbol, keyword or number.
fn is_symbol(c: char) -> bool {
    !c.is_whitespace() && !matches!(c, ',' | ';' | '"' | '(' | ')' | '[' | ']' | '{' | '}' | '\\')
}
