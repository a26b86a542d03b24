//! Java classes by name.

use std::fmt;

use super::value;
use crate::io::DecodeError;

/// A Java class that can stand before a value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// `void`, the class of nothing.
    Void,
    /// `boolean`
    Boolean,
    /// `byte`
    Byte,
    /// `char`
    Char,
    /// `short`
    Short,
    /// `int`
    Int,
    /// `long`
    Long,
    /// `float`
    Float,
    /// `double`
    Double,
    /// `java.lang.String`
    String,
    /// An array of elements of a class: `[I`, `[Ljava.lang.String;`
    Array(Box<Class>),
    /// The enum of this name.
    Enum(&'static str),
    /// The class or interface of this name, one of objects that write themselves.
    Object(&'static str),
}

/// Arrays inside one another. The original's interfaces have arrays of objects only.
const MAX_DEPTH: usize = 4;

impl Class {
    /// The class of this name.
    ///
    /// Errors: it is not known.
    pub fn parse(name: &str) -> Result<Class, DecodeError> {
        Class::parse_within(name, MAX_DEPTH)
    }

    fn parse_within(name: &str, depth: usize) -> Result<Class, DecodeError> {
        if let Some(items) = name.strip_prefix('[') {
            let depth = depth.checked_sub(1).ok_or(DecodeError::Depth)?;
            return Class::items(items, depth).map(|items| Class::Array(Box::new(items)));
        }
        match name {
            "void" => Ok(Class::Void),
            "boolean" => Ok(Class::Boolean),
            "byte" => Ok(Class::Byte),
            "char" => Ok(Class::Char),
            "short" => Ok(Class::Short),
            "int" => Ok(Class::Int),
            "long" => Ok(Class::Long),
            "float" => Ok(Class::Float),
            "double" => Ok(Class::Double),
            "java.lang.String" => Ok(Class::String),
            _ => value::object_class(name)
                .map(Class::Object)
                .or_else(|| value::enum_class(name).map(Class::Enum))
                .ok_or_else(|| DecodeError::class(name)),
        }
    }

    /// The class of an array's items, from the code after the bracket.
    fn items(code: &str, depth: usize) -> Result<Class, DecodeError> {
        match code {
            "Z" => Ok(Class::Boolean),
            "B" => Ok(Class::Byte),
            "C" => Ok(Class::Char),
            "S" => Ok(Class::Short),
            "I" => Ok(Class::Int),
            "J" => Ok(Class::Long),
            "F" => Ok(Class::Float),
            "D" => Ok(Class::Double),
            _ if code.starts_with('[') => Class::parse_within(code, depth),
            _ => {
                let name = code.strip_prefix('L').and_then(|name| name.strip_suffix(';'));
                let name = name.ok_or_else(|| DecodeError::class(code))?;
                match Class::parse_within(name, 0)? {
                    class @ (Class::String | Class::Enum(_) | Class::Object(_)) => Ok(class),
                    _ => Err(DecodeError::class(code)),
                }
            }
        }
    }

    /// Whether it is the class of this name, as Java writes it: arrays in the form of their descriptors.
    pub fn is_named(&self, name: &str) -> bool {
        match self {
            Class::Array(_) => self.to_string() == name,
            simple => simple.simple_name() == name,
        }
    }

    /// The name; of an array the bracket only.
    fn simple_name(&self) -> &'static str {
        match self {
            Class::Void => "void",
            Class::Boolean => "boolean",
            Class::Byte => "byte",
            Class::Char => "char",
            Class::Short => "short",
            Class::Int => "int",
            Class::Long => "long",
            Class::Float => "float",
            Class::Double => "double",
            Class::String => "java.lang.String",
            Class::Enum(name) | Class::Object(name) => name,
            Class::Array(_) => "[",
        }
    }

    /// The name as the item of an array.
    fn code(&self) -> String {
        let code = match self {
            Class::Void => "V",
            Class::Boolean => "Z",
            Class::Byte => "B",
            Class::Char => "C",
            Class::Short => "S",
            Class::Int => "I",
            Class::Long => "J",
            Class::Float => "F",
            Class::Double => "D",
            Class::Array(_) => return self.to_string(),
            Class::String | Class::Enum(_) | Class::Object(_) => return format!("L{self};"),
        };
        code.to_owned()
    }
}

/// The name as returned by Java's `Class.getName`.
impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Class::Array(items) => write!(f, "[{}", items.code()),
            simple => f.write_str(simple.simple_name()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_classes() {
        let table = [
            ("void", Class::Void),
            ("int", Class::Int),
            ("java.lang.String", Class::String),
            ("[I", Class::Array(Box::new(Class::Int))),
            ("[[J", Class::Array(Box::new(Class::Array(Box::new(Class::Long))))),
            ("[Ljava.lang.String;", Class::Array(Box::new(Class::String))),
            ("org.apache.hadoop.mapred.Task", Class::Object("org.apache.hadoop.mapred.Task")),
            ("org.apache.hadoop.io.Writable", Class::Object("org.apache.hadoop.io.Writable")),
            (
                "[Lorg.apache.hadoop.mapred.TaskTrackerAction;",
                Class::Array(Box::new(Class::Object("org.apache.hadoop.mapred.TaskTrackerAction"))),
            ),
            (
                "org.apache.hadoop.mapred.JobPriority",
                Class::Enum("org.apache.hadoop.mapred.JobPriority"),
            ),
        ];
        for (name, class) in table {
            assert_eq!(Class::parse(name), Ok(class.clone()), "{name}");
            assert_eq!(class.to_string(), name);
        }
    }

    #[test]
    fn other_names_are_refused() {
        for name in ["", "VV", "[", "[V", "[Lint;", "[Ljava.lang.String", "java.lang.Long"] {
            assert!(matches!(Class::parse(name), Err(DecodeError::Class(_))), "{name}");
        }
        assert_eq!(Class::parse("[L[I;"), Err(DecodeError::Depth));
        assert_eq!(Class::parse("[[[[[I"), Err(DecodeError::Depth));
        let deep = "[".repeat(60_000);
        assert_eq!(Class::parse(&deep), Err(DecodeError::Depth));
        let long = "x".repeat(60_000);
        let Err(DecodeError::Class(quoted)) = Class::parse(&long) else { panic!("is no class") };
        assert_eq!(quoted.len(), 120, "an error quotes only the beginning");
    }
}
