//! The contract of the wire as data: `thrift/ClusterManager.thrift`, read once.
//!
//! Checking a message, naming missing fields and showing it to people all follow this one
//! description, and the build script makes readers and the tables of the services from it. It knows
//! nothing of bytes, and needs nothing but the standard library.

use std::collections::HashMap;
use std::error::Error;
use std::fmt;
use std::sync::LazyLock;

/// The text of the contract, `thrift/ClusterManager.thrift`.
pub const IDL: &str = include_str!("ClusterManager.thrift");

/// The contract that this crate is built with.
#[allow(clippy::expect_used, reason = "the contract is a constant that a test reads")]
pub fn schema() -> &'static Schema {
    static SCHEMA: LazyLock<Schema> =
        LazyLock::new(|| Schema::parse(IDL).expect("a test reads the embedded contract"));
    &SCHEMA
}

/// Everything that the contract declares.
#[derive(Debug)]
pub struct Schema {
    structs: Vec<StructSchema>,
    enums: Vec<EnumSchema>,
    services: Vec<ServiceSchema>,
    empty: StructId,
    application_exception: StructId,
}

/// A struct, an exception, or the arguments or the result of a method.
#[derive(Debug)]
pub struct StructSchema {
    /// Name as in the contract; `<method>_args` and `<method>_result` for those of a method.
    pub name: String,
    /// Declared with `exception`.
    pub is_exception: bool,
    /// In ascending order of id, which is also the order of writing.
    pub fields: Vec<FieldSchema>,
    /// Index into `fields` for each id from 0 on.
    by_id: Vec<Option<u8>>,
    /// One bit for each entry of `fields` that is required.
    pub(crate) required: u32,
}

/// A field of a struct.
#[derive(Debug)]
pub struct FieldSchema {
    /// Its number on the wire.
    pub id: i16,
    /// Its name.
    pub name: String,
    /// Its type.
    pub kind: Kind,
    /// Whether a struct without it is refused.
    pub required: bool,
    /// The contract's annotations of it, by key.
    pub annotations: Annotations,
}

/// Notes in the contract, such as `(rs.name = "ids")`: keys and values.
pub type Annotations = Vec<(String, String)>;

/// The type of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A truth value.
    Bool,
    /// A 16-bit number.
    I16,
    /// A 32-bit number.
    I32,
    /// A 64-bit number.
    I64,
    /// Text.
    String,
    /// A number with a name.
    Enum(EnumId),
    /// A struct.
    Struct(StructId),
    /// Values of one type, in order.
    List(Box<Kind>),
    /// Values by key.
    Map(Box<Kind>, Box<Kind>),
}

/// Names a struct of its [`Schema`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StructId(usize);

/// Names an enumeration of its [`Schema`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EnumId(usize);

/// An enumeration.
#[derive(Debug)]
pub struct EnumSchema {
    /// Its name.
    pub name: String,
    /// Names and numbers, in the order of the contract.
    pub values: Vec<(String, i32)>,
}

/// A service.
#[derive(Debug)]
pub struct ServiceSchema {
    /// Its name.
    pub name: String,
    /// Its methods, in the order of the contract.
    pub methods: Vec<MethodSchema>,
    /// The contract's annotations of it, by key.
    pub annotations: Annotations,
}

/// A method of a service.
#[derive(Debug)]
pub struct MethodSchema {
    /// Its name on the wire.
    pub name: String,
    /// The struct of its arguments.
    pub args: StructId,
    /// The struct of its result: field 0 is the value, the others are the declared exceptions.
    pub result: StructId,
}

/// The error in the text of a contract.
#[derive(Debug, PartialEq, Eq)]
pub struct SchemaError {
    /// Line, from 1 on.
    pub line: usize,
    /// The expected or found text.
    pub what: String,
}

impl fmt::Display for SchemaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.what)
    }
}

impl Error for SchemaError {}

impl Schema {
    /// Reads a contract. Takes the part of the language that this project's contract uses:
    /// `typedef`, `enum`, `struct`, `exception` and `service`, each declared before it is used.
    pub fn parse(text: &str) -> Result<Schema, SchemaError> {
        Parser::new(text)?.run()
    }

    /// The struct that an id names.
    #[allow(clippy::indexing_slicing, reason = "an id names a struct of the contract")]
    pub fn structure(&self, id: StructId) -> &StructSchema {
        &self.structs[id.0]
    }

    /// The enumeration that an id names.
    #[allow(clippy::indexing_slicing, reason = "an id names an enumeration of the contract")]
    pub fn enumeration(&self, id: EnumId) -> &EnumSchema {
        &self.enums[id.0]
    }

    /// All enumerations, in the order of the contract.
    pub fn enums(&self) -> &[EnumSchema] {
        &self.enums
    }

    /// All structs and exceptions, those of methods included.
    pub fn structs(&self) -> impl Iterator<Item = (StructId, &StructSchema)> {
        self.structs.iter().enumerate().map(|(index, schema)| (StructId(index), schema))
    }

    /// The struct or exception with this name.
    pub fn struct_named(&self, name: &str) -> Option<StructId> {
        self.structs.iter().position(|schema| schema.name == name).map(StructId)
    }

    /// All services, in the order of the contract.
    pub fn services(&self) -> &[ServiceSchema] {
        &self.services
    }

    /// The service with this name.
    pub fn service(&self, name: &str) -> Option<&ServiceSchema> {
        self.services.iter().find(|service| service.name == name)
    }

    /// A struct without fields: the arguments of an unknown method.
    pub fn empty(&self) -> StructId {
        self.empty
    }

    /// The body of an EXCEPTION message. Spec: cluster-manager/01 §3.1.
    pub fn application_exception(&self) -> StructId {
        self.application_exception
    }
}

impl StructSchema {
    /// The field with this number, and its place in `fields`.
    pub fn field(&self, id: i16) -> Option<(usize, &FieldSchema)> {
        let index = usize::from((*self.by_id.get(usize::try_from(id).ok()?)?)?);
        self.fields.get(index).map(|field| (index, field))
    }

    fn new(name: String, is_exception: bool, fields: Vec<FieldSchema>) -> StructSchema {
        let mut by_id = vec![];
        let mut required = 0;
        for (index, field) in fields.iter().enumerate() {
            // The parser takes ids from 0 up in ascending order, and 32 fields at most.
            by_id.resize(usize::try_from(field.id).unwrap_or_default(), None);
            by_id.push(u8::try_from(index).ok());
            required |= u32::from(field.required) << index;
        }
        StructSchema { name, is_exception, fields, by_id, required }
    }
}

impl FieldSchema {
    fn optional(id: i16, name: &str, kind: Kind) -> FieldSchema {
        FieldSchema { id, name: name.to_owned(), kind, required: false, annotations: vec![] }
    }
}

impl EnumSchema {
    /// The name for a number; none for a number that the contract does not know.
    pub fn name_of(&self, number: i32) -> Option<&str> {
        self.values.iter().find(|(_, value)| *value == number).map(|(name, _)| name.as_str())
    }
}

impl ServiceSchema {
    /// The method with this name.
    pub fn method(&self, name: &str) -> Option<&MethodSchema> {
        self.methods.iter().find(|method| method.name == name)
    }
}

/// At most this many fields in a struct, so that a set of them fits a word.
const MAX_FIELDS: usize = 32;
/// Field ids lie below this, so that they can be an index.
const MAX_FIELD_ID: i16 = 255;

struct Parser<'a> {
    tokens: Vec<(usize, &'a str)>,
    next: usize,
    names: HashMap<&'a str, Kind>,
    schema: Schema,
}

impl<'a> Parser<'a> {
    fn new(text: &'a str) -> Result<Self, SchemaError> {
        let application_exception = StructSchema::new(
            "TApplicationException".to_owned(),
            true,
            vec![
                FieldSchema::optional(1, "message", Kind::String),
                FieldSchema::optional(2, "type", Kind::I32),
            ],
        );
        let structs = vec![StructSchema::new(String::new(), false, vec![]), application_exception];
        let names = HashMap::from([
            ("bool", Kind::Bool),
            ("i16", Kind::I16),
            ("i32", Kind::I32),
            ("i64", Kind::I64),
            ("string", Kind::String),
        ]);
        Ok(Parser {
            tokens: tokens(text)?,
            next: 0,
            names,
            schema: Schema {
                structs,
                enums: vec![],
                services: vec![],
                empty: StructId(0),
                application_exception: StructId(1),
            },
        })
    }

    fn run(mut self) -> Result<Schema, SchemaError> {
        while self.next < self.tokens.len() {
            match self.take()? {
                "namespace" => {
                    self.take()?;
                    self.take()?;
                }
                "typedef" => {
                    let kind = self.kind()?;
                    let name = self.take()?;
                    self.names.insert(name, kind);
                }
                "enum" => self.enumeration()?,
                "struct" => self.structure(false)?,
                "exception" => self.structure(true)?,
                "service" => self.service()?,
                other => return Err(self.error(format!("unexpected '{other}'"))),
            }
        }
        Ok(self.schema)
    }

    fn enumeration(&mut self) -> Result<(), SchemaError> {
        let name = self.take()?;
        self.expect("{")?;
        let mut values = vec![];
        while !self.accept("}") {
            let value = self.take()?;
            self.expect("=")?;
            values.push((value.to_owned(), self.number()?));
            self.separator();
        }
        self.names.insert(name, Kind::Enum(EnumId(self.schema.enums.len())));
        self.schema.enums.push(EnumSchema { name: name.to_owned(), values });
        Ok(())
    }

    fn structure(&mut self, is_exception: bool) -> Result<(), SchemaError> {
        let name = self.take()?;
        self.expect("{")?;
        let fields = self.fields("}", true)?;
        let id = self.add(name.to_owned(), is_exception, fields);
        self.names.insert(name, Kind::Struct(id));
        Ok(())
    }

    fn service(&mut self) -> Result<(), SchemaError> {
        let name = self.take()?.to_owned();
        self.expect("{")?;
        let mut methods = vec![];
        while !self.accept("}") {
            methods.push(self.method()?);
            self.separator();
        }
        let annotations = self.annotations()?;
        self.schema.services.push(ServiceSchema { name, methods, annotations });
        Ok(())
    }

    fn method(&mut self) -> Result<MethodSchema, SchemaError> {
        let returns = if self.accept("void") { None } else { Some(self.kind()?) };
        let name = self.take()?.to_owned();
        self.expect("(")?;
        let args = self.fields(")", false)?;
        let mut results = vec![];
        if let Some(kind) = returns {
            results.push(FieldSchema::optional(0, "success", kind));
        }
        if self.accept("throws") {
            self.expect("(")?;
            results.extend(self.fields(")", false)?);
        }
        let args = self.add(format!("{name}_args"), false, args);
        let result = self.add(format!("{name}_result"), false, results);
        Ok(MethodSchema { name, args, result })
    }

    /// Fields up to `end`; only those of structs and exceptions may be required.
    fn fields(&mut self, end: &str, declared: bool) -> Result<Vec<FieldSchema>, SchemaError> {
        let mut fields: Vec<FieldSchema> = vec![];
        while !self.accept(end) {
            let id = self.number()?;
            let id = i16::try_from(id).ok().filter(|id| (1..=MAX_FIELD_ID).contains(id));
            let id = id.ok_or_else(|| self.error("a field id out of range".to_owned()))?;
            if fields.last().is_some_and(|last| last.id >= id) || fields.len() == MAX_FIELDS - 1 {
                return Err(self.error("too many fields, or ids that do not ascend".to_owned()));
            }
            self.expect(":")?;
            let required = declared && self.accept("required");
            if declared && !required {
                self.expect("optional")?;
            }
            let kind = self.kind()?;
            let name = self.take()?.to_owned();
            let annotations = self.annotations()?;
            self.separator();
            fields.push(FieldSchema { id, name, kind, required, annotations });
        }
        Ok(fields)
    }

    /// `(key = "value", ...)`, where there are any.
    fn annotations(&mut self) -> Result<Annotations, SchemaError> {
        let mut annotations = vec![];
        if self.accept("(") {
            while !self.accept(")") {
                let key = self.take()?.to_owned();
                self.expect("=")?;
                let quoted = self.take()?;
                let value = quoted.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
                let value = value.ok_or_else(|| self.error(format!("'{quoted}' is no text")))?;
                annotations.push((key, value.to_owned()));
                self.separator();
            }
        }
        Ok(annotations)
    }

    fn kind(&mut self) -> Result<Kind, SchemaError> {
        match self.take()? {
            "list" => {
                self.expect("<")?;
                let element = self.kind()?;
                self.expect(">")?;
                Ok(Kind::List(Box::new(element)))
            }
            "map" => {
                self.expect("<")?;
                let key = self.kind()?;
                self.expect(",")?;
                let value = self.kind()?;
                self.expect(">")?;
                Ok(Kind::Map(Box::new(key), Box::new(value)))
            }
            name => match self.names.get(name) {
                Some(kind) => Ok(kind.clone()),
                None => Err(self.error(format!("unknown type '{name}'"))),
            },
        }
    }

    fn add(&mut self, name: String, is_exception: bool, fields: Vec<FieldSchema>) -> StructId {
        self.schema.structs.push(StructSchema::new(name, is_exception, fields));
        StructId(self.schema.structs.len() - 1)
    }

    fn take(&mut self) -> Result<&'a str, SchemaError> {
        let token = self.tokens.get(self.next).map(|(_, token)| *token);
        self.next += 1;
        token.ok_or_else(|| self.error("unexpected end".to_owned()))
    }

    fn number(&mut self) -> Result<i32, SchemaError> {
        let token = self.take()?;
        token.parse().map_err(|_| self.error(format!("'{token}' is not a number")))
    }

    fn accept(&mut self, token: &str) -> bool {
        let found = self.tokens.get(self.next).is_some_and(|(_, next)| *next == token);
        self.next += usize::from(found);
        found
    }

    fn expect(&mut self, token: &str) -> Result<(), SchemaError> {
        match self.take()? {
            found if found == token => Ok(()),
            found => Err(self.error(format!("expected '{token}', found '{found}'"))),
        }
    }

    fn separator(&mut self) {
        let _ = self.accept(",") || self.accept(";");
    }

    /// An error at the token that was taken last.
    fn error(&self, what: String) -> SchemaError {
        let token = self.tokens.get(self.next.saturating_sub(1)).or(self.tokens.last());
        SchemaError { line: token.map_or(1, |(line, _)| *line), what }
    }
}

/// Words and signs with their lines, without comments.
fn tokens(text: &str) -> Result<Vec<(usize, &str)>, SchemaError> {
    let mut tokens = vec![];
    let mut rest = text;
    let mut line = 1;
    while let Some(first) = rest.chars().next() {
        let length = if rest.starts_with("/*") {
            let unclosed = || SchemaError { line, what: "a comment without end".to_owned() };
            rest.find("*/").ok_or_else(unclosed)? + 2
        } else if rest.starts_with("//") || first == '#' {
            rest.find('\n').unwrap_or(rest.len())
        } else if first.is_whitespace() {
            first.len_utf8()
        } else {
            let word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
            let length = match rest.get(1..).and_then(|rest| rest.find('"')) {
                Some(quote) if first == '"' => quote + 2,
                _ => rest.find(|c: char| !word(c)).unwrap_or(rest.len()).max(first.len_utf8()),
            };
            tokens.push((line, &rest[..length]));
            length
        };
        line += rest[..length].matches('\n').count();
        rest = &rest[length..];
    }
    Ok(tokens)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_embedded_contract_reads() {
        let schema = Schema::parse(IDL).unwrap();
        let services: Vec<_> =
            schema.services().iter().map(|s| (s.name.as_str(), s.methods.len())).collect();
        assert_eq!(
            services,
            [
                ("ClusterManagerService", 20),
                ("SessionDriverService", 3),
                ("CoronaTaskTrackerService", 2),
                ("CoronaProxyJobTrackerService", 4),
            ]
        );
    }

    #[test]
    fn annotations_are_kept() {
        let text = "service S { void m(1: bool a (x = \"b c\", y = \"\"), 2: bool d) } (z = \"1\")";
        let schema = Schema::parse(text).unwrap();
        let [service] = schema.services() else { panic!("{schema:?}") };
        assert_eq!(service.annotations, [("z".to_owned(), "1".to_owned())]);
        let fields = &schema.structure(service.methods[0].args).fields;
        let pairs = [("x".to_owned(), "b c".to_owned()), ("y".to_owned(), String::new())];
        assert_eq!(fields[0].annotations, pairs);
        assert_eq!(fields[1].annotations, []);
    }

    #[test]
    fn fields_are_found_by_number() {
        let schema = schema();
        let request = schema.structure(schema.struct_named("ResourceRequest").unwrap());
        let (_, kind) = request.field(4).unwrap();
        assert_eq!((kind.name.as_str(), kind.required), ("type", true));
        assert_eq!(request.required, 0b01001);
        for absent in [-1, 0, 6, i16::MAX, i16::MIN] {
            assert!(request.field(absent).is_none(), "{absent}");
        }
    }

    #[test]
    fn mistakes_are_named_with_their_line() {
        for (text, line, what) in [
            ("struct A {\n 1: required B b\n}", 2, "unknown type 'B'"),
            ("struct A {\n 1: i32 b\n}", 2, "expected 'optional', found 'i32'"),
            ("struct A { 2: optional i32 a\n 1: optional i32 b }", 2, "too many fields"),
            ("struct A { 0: optional i32 a }", 1, "a field id out of range"),
            ("enum A { X = y }", 1, "'y' is not a number"),
            ("\n/* never closed", 2, "a comment without end"),
            ("service S {\n", 1, "unexpected end"),
            ("const i32 X = 1", 1, "unexpected 'const'"),
            ("service S {} (a = b)", 1, "'b' is no text"),
            ("service S {} (a = \"b", 1, "'\"' is no text"),
        ] {
            let error = Schema::parse(text).unwrap_err();
            assert_eq!(error.line, line, "{text}: {error}");
            assert!(error.what.contains(what), "{text}: {error}");
        }
    }
}
