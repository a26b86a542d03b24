//! Macros that declare a type together with its encoding, or the class of one.

/// Declares a struct whose fields are encoded one after another, each in the format after its `as`.
///
/// With `: "class"` after its name the struct is [`Named`](super::Named) and can be a parameter or
/// a result.
macro_rules! writable {
    (
        $(#[$doc:meta])*
        pub struct $name:ident: $class:literal {
            $($(#[$field_doc:meta])* pub $field:ident: $type:ty as $format:ty,)*
        }
    ) => {
        $crate::writables::writable! {
            $(#[$doc])*
            pub struct $name {
                $($(#[$field_doc])* pub $field: $type as $format,)*
            }
        }

        $crate::writables::named!($name: $class);
    };
    (
        $(#[$doc:meta])*
        pub struct $name:ident {
            $($(#[$field_doc:meta])* pub $field:ident: $type:ty as $format:ty,)*
        }
    ) => {
        $(#[$doc])*
        pub struct $name {
            $($(#[$field_doc])* pub $field: $type,)*
        }

        impl $crate::io::formats::Writable for $name {
            fn decode(
                reader: &mut $crate::io::Reader<'_>,
            ) -> Result<Self, $crate::io::DecodeError> {
                use $crate::io::formats::Format;
                Ok($name { $($field: <$format as Format<$type>>::decode(reader)?,)* })
            }

            fn encode(&self, writer: &mut $crate::io::Writer) {
                use $crate::io::formats::Format;
                $(<$format as Format<$type>>::encode(&self.$field, writer);)*
            }
        }
    };
}

/// Makes a [`Writable`](crate::io::formats::Writable) of one class [`Named`](super::Named).
macro_rules! named {
    ($name:ident: $class:literal) => {
        impl $crate::writables::Named for $name {
            const DECLARED: &'static str = $class;
            const ARRAY: &'static str = concat!("[L", $class, ";");
            const CLASSES: &'static [&'static str] = &[$class];

            fn class(&self) -> &'static str {
                $class
            }

            fn decode_fields(
                _class: &str,
                reader: &mut $crate::io::Reader<'_>,
            ) -> Result<Self, $crate::io::DecodeError> {
                $crate::io::formats::Writable::decode(reader)
            }

            fn encode_fields(&self, writer: &mut $crate::io::Writer) {
                $crate::io::formats::Writable::encode(self, writer);
            }
        }
    };
}

/// Declares an enum whose constants travel by name.
macro_rules! constants {
    (
        $(#[$doc:meta])*
        $vis:vis enum $name:ident: $class:literal {
            $($(#[$constant_doc:meta])* $constant:ident = $text:literal,)*
        }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        $vis enum $name {
            $($(#[$constant_doc])* $constant,)*
        }

        impl $crate::io::formats::Constant for $name {
            const CLASS: &'static str = $class;
            const ALL: &'static [$name] = &[$($name::$constant,)*];

            fn name(self) -> &'static str {
                match self {
                    $($name::$constant => $text,)*
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad($crate::io::formats::Constant::name(*self))
            }
        }
    };
}

pub(crate) use {constants, named, writable};
