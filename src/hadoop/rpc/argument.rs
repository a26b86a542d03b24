//! Rust types as parameters and results.

use super::fault::Fault;
use crate::io::formats::Constant;
use crate::object::{Class, Object, Value};
use crate::writables::{self, Named};

/// A type that can be a parameter or a result.
pub trait Argument: Sized {
    /// The class that interfaces declare for it.
    const CLASS: &'static str;
    /// The class of its array; empty if there is none.
    const ARRAY: &'static str;

    /// The value with its class.
    fn into_object(self) -> Object;

    /// The value of an object of the class [`CLASS`](Argument::CLASS).
    ///
    /// Errors: the object, if it is a null that the type has no place for, or of another class.
    fn from_object(object: Object) -> Result<Self, Object>;
}

/// The class of this name. The names come from this program.
fn class(name: &'static str) -> Class {
    Class::parse(name).unwrap_or(Class::Object(name))
}

macro_rules! primitive_arguments {
    ($($type:ty: $variant:ident, $class:literal, $array:literal;)*) => {$(
        impl Argument for $type {
            const CLASS: &'static str = $class;
            const ARRAY: &'static str = $array;

            fn into_object(self) -> Object {
                Object::$variant(self)
            }

            fn from_object(object: Object) -> Result<Self, Object> {
                match object {
                    Object::$variant(value) => Ok(value),
                    other => Err(other),
                }
            }
        }
    )*};
}

primitive_arguments! {
    bool: Boolean, "boolean", "[Z";
    i8: Byte, "byte", "[B";
    i16: Short, "short", "[S";
    i32: Int, "int", "[I";
    i64: Long, "long", "[J";
    String: String, "java.lang.String", "[Ljava.lang.String;";
}

/// The result of a method that has none.
impl Argument for () {
    const CLASS: &'static str = "void";
    const ARRAY: &'static str = "";

    fn into_object(self) -> Object {
        Object::Null(Class::Void)
    }

    fn from_object(object: Object) -> Result<Self, Object> {
        match object {
            Object::Null(Class::Void) => Ok(()),
            other => Err(other),
        }
    }
}

/// A value that may be null.
impl<T: Argument> Argument for Option<T> {
    const CLASS: &'static str = T::CLASS;
    const ARRAY: &'static str = T::ARRAY;

    fn into_object(self) -> Object {
        self.map_or_else(|| Object::Null(class(T::CLASS)), T::into_object)
    }

    fn from_object(object: Object) -> Result<Self, Object> {
        match object {
            Object::Null(_) => Ok(None),
            other => T::from_object(other).map(Some),
        }
    }
}

impl<T: Argument> Argument for Vec<T> {
    const CLASS: &'static str = T::ARRAY;
    const ARRAY: &'static str = "";

    fn into_object(self) -> Object {
        let items = self.into_iter().map(T::into_object).collect();
        Object::Array(class(T::CLASS), items)
    }

    fn from_object(object: Object) -> Result<Self, Object> {
        match object {
            Object::Array(_, items) => items.into_iter().map(T::from_object).collect(),
            other => Err(other),
        }
    }
}

impl<T: Named + Into<Value> + TryFrom<Value, Error = Value>> Argument for T {
    const CLASS: &'static str = <T as Named>::DECLARED;
    const ARRAY: &'static str = <T as Named>::ARRAY;

    fn into_object(self) -> Object {
        Object::Writable(Class::Object(<T as Named>::DECLARED), self.into())
    }

    fn from_object(object: Object) -> Result<Self, Object> {
        match object {
            Object::Writable(class, value) => {
                T::try_from(value).map_err(|value| Object::Writable(class, value))
            }
            other => Err(other),
        }
    }
}

macro_rules! enum_arguments {
    ($($type:ident, $array:literal;)*) => {$(
        impl Argument for writables::$type {
            const CLASS: &'static str = <writables::$type as Constant>::CLASS;
            const ARRAY: &'static str = $array;

            fn into_object(self) -> Object {
                Object::Constant(class(<Self as Argument>::CLASS), self.name().to_owned())
            }

            fn from_object(object: Object) -> Result<Self, Object> {
                match &object {
                    Object::Constant(class, name)
                        if class.is_named(<Self as Argument>::CLASS) =>
                    {
                        Self::from_name(name).ok_or(object)
                    }
                    _ => Err(object),
                }
            }
        }
    )*};
}

enum_arguments! {
    SafeModeAction, "[Lorg.apache.hadoop.hdfs.protocol.FSConstants$SafeModeAction;";
}

/// The parameters of a call, taken one by one.
#[derive(Debug)]
pub struct Parameters(std::vec::IntoIter<Object>);

impl Parameters {
    /// The parameters of a call whose classes are those of the method.
    pub fn new(parameters: Vec<Object>) -> Parameters {
        Parameters(parameters.into_iter())
    }

    /// The next parameter.
    ///
    /// Errors: it is null where that makes no sense, or an object of a wrong class. The original
    /// answers with an `IllegalArgumentException` in both cases, or fails later.
    pub fn take<T: Argument>(&mut self) -> Result<T, Fault> {
        let object = self.0.next();
        let object = object.ok_or_else(|| Fault::illegal_argument("wrong number of arguments"))?;
        T::from_object(object).map_err(|_| Fault::illegal_argument("argument type mismatch"))
    }
}
