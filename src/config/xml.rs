//! XML files as a small tree with line numbers, includes followed and every size bounded.
//!
//! It does not interpret the elements. `roxmltree` does the parsing; it reads no other file and
//! does not recurse into elements, but its time and memory grow with the square of the attributes
//! of an element and of the namespaces in scope, and with every use of an entity. So both are
//! bounded before it starts, and document types that declare anything are refused.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::files::FileReader;
use super::problem::{Origin, Problem, ProblemKind};

/// The deepest element, those around an include counted.
const MAX_DEPTH: usize = 64;
/// The longest tag, attributes included.
const MAX_TAG_BYTES: usize = 4096;
/// Times that a document may mention `xmlns`.
const MAX_NAMESPACES: usize = 256;
/// The longest chain of includes.
const MAX_INCLUDE_DEPTH: usize = 16;
/// The namespace of `xi:include` and `xi:fallback`.
const XINCLUDE: &str = "http://www.w3.org/2001/XInclude";

/// Whether `xi:include` is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Includes {
    /// As in property files.
    Followed,
    /// As in the scheduling files, where it is an element like any other.
    Plain,
}

/// An element with the properties that the readers of configuration files use.
#[derive(Clone, Debug)]
pub(super) struct Element {
    /// The name as written, prefix included.
    pub(super) name: String,
    /// Attributes without a prefix.
    attributes: Vec<(String, String)>,
    /// The elements directly inside, includes replaced.
    pub(super) children: Vec<Element>,
    /// Its first content.
    content: Content,
    /// The file and line of the start tag.
    pub(super) origin: Origin,
}

/// The first thing inside an element, comments left out: all that the original looks at.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Content {
    Nothing,
    Text(String),
    Other,
}

impl Element {
    /// The text that the element starts with; `None` when there is nothing inside. Comments do not
    /// end it, a CDATA section and other text do not join. An element inside is an error.
    pub(super) fn text(&self) -> Result<Option<&str>, Problem> {
        match &self.content {
            Content::Nothing => Ok(None),
            Content::Text(text) => Ok(Some(text)),
            Content::Other => Err(self.error(ProblemKind::NotText)),
        }
    }

    /// The value of an attribute.
    pub(super) fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// All attributes.
    pub(super) fn attributes(&self) -> impl Iterator<Item = (&str, &str)> {
        self.attributes.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }

    /// An error at this element, with its name as the subject.
    pub(super) fn error(&self, kind: ProblemKind) -> Problem {
        Problem::error(self.origin.clone(), kind).of(self.name.clone())
    }
}

/// Blanks as Java's `trim` sees them: everything up to U+0020.
pub(super) fn trim(text: &str) -> &str {
    text.trim_matches(|c| c <= ' ')
}

/// The outermost element of a file. Every problem is an error that names a file and mostly a line.
pub(super) fn read(
    path: &Path,
    includes: Includes,
    files: &mut FileReader,
) -> Result<Element, Problem> {
    let bytes = files.read(path)?;
    let mut document = DocumentReader { includes, files, including: Vec::new() };
    document.element(path, &bytes, 0)
}

struct DocumentReader<'a> {
    includes: Includes,
    files: &'a mut FileReader,
    /// The files from the outermost to the one being read, to refuse cycles.
    including: Vec<PathBuf>,
}

impl DocumentReader<'_> {
    fn element(&mut self, path: &Path, bytes: &[u8], depth: usize) -> Result<Element, Problem> {
        let text = decode(bytes)
            .map_err(|what| Problem::error(Origin::file(path), ProblemKind::Encoding(what)))?;
        let source = Source::new(path, &text);
        let document = source.parse()?;
        self.including.push(std::fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf()));
        let outermost = self.convert(&source, document.root_element(), depth);
        self.including.pop();
        let mut outermost = outermost?;
        match outermost.pop() {
            Some(element) if outermost.is_empty() => Ok(element),
            _ => Err(source
                .error_at(0, ProblemKind::Include("leaves the file without one element".into()))),
        }
    }

    /// The element, or the replacement of an include.
    fn convert(
        &mut self,
        source: &Source<'_>,
        node: roxmltree::Node<'_, '_>,
        depth: usize,
    ) -> Result<Vec<Element>, Problem> {
        let start = node.range().start;
        if depth > MAX_DEPTH {
            return Err(source.error_at(start, too_deep()));
        }
        if self.includes == Includes::Followed && node.tag_name().namespace() == Some(XINCLUDE) {
            return match node.tag_name().name() {
                "include" => self.include(source, node, depth),
                name => {
                    let what = format!("<{name}> outside of an include");
                    Err(source.error_at(start, ProblemKind::Include(what)))
                }
            };
        }
        let element = Element {
            name: source.qualified_name(start).to_owned(),
            attributes: node
                .attributes()
                .filter(|attribute| attribute.namespace().is_none())
                .map(|attribute| (attribute.name().to_owned(), attribute.value().to_owned()))
                .collect(),
            children: self.children(source, node, depth)?,
            content: content(source, node),
            origin: source.origin_at(start),
        };
        Ok(vec![element])
    }

    fn children(
        &mut self,
        source: &Source<'_>,
        node: roxmltree::Node<'_, '_>,
        depth: usize,
    ) -> Result<Vec<Element>, Problem> {
        let mut children = Vec::new();
        for child in node.children().filter(roxmltree::Node::is_element) {
            children.extend(self.convert(source, child, depth + 1)?);
        }
        Ok(children)
    }

    /// The replacement of an include: the outermost element of the file; the content of the
    /// fallback when there is no such file.
    fn include(
        &mut self,
        source: &Source<'_>,
        node: roxmltree::Node<'_, '_>,
        depth: usize,
    ) -> Result<Vec<Element>, Problem> {
        let refuse =
            |what: String| Err(source.error_at(node.range().start, ProblemKind::Include(what)));
        match node.attribute("parse") {
            None | Some("xml") => {}
            Some(other) => return refuse(format!("parse={other:?}; only parse=\"xml\" is read")),
        }
        if node.has_attribute("xpointer") {
            return refuse("xpointer is not supported; include a whole file".into());
        }
        let path = match node.attribute("href").map(|href| target(source.path, href)) {
            None => return refuse("has no href".into()),
            Some(Err(what)) => return refuse(what),
            Some(Ok(path)) => path,
        };
        let canonical = match std::fs::canonicalize(&path) {
            Ok(canonical) => canonical,
            Err(error) => {
                self.files.note(&path);
                return match fallback(node) {
                    Some(fallback) => self.children(source, fallback, depth),
                    None => refuse(format!(
                        "{} cannot be read: {error}; expected a file, or a <xi:fallback>",
                        path.display()
                    )),
                };
            }
        };
        if self.including.contains(&canonical) {
            return refuse(format!("{} includes itself", path.display()));
        }
        if self.including.len() > MAX_INCLUDE_DEPTH {
            return refuse(format!("more than {MAX_INCLUDE_DEPTH} files include each other"));
        }
        let bytes = self.files.read(&path)?;
        Ok(vec![self.element(&path, &bytes, depth)?])
    }
}

fn fallback<'a, 'input>(
    include: roxmltree::Node<'a, 'input>,
) -> Option<roxmltree::Node<'a, 'input>> {
    include.children().find(|child| child.has_tag_name((XINCLUDE, "fallback")))
}

/// The file that `href` names, seen from the including file.
fn target(including: &Path, href: &str) -> Result<PathBuf, String> {
    let path = match href.split_once(':') {
        Some((scheme, rest)) if !scheme.contains('/') => {
            if scheme != "file" {
                return Err(format!("href={href:?}; only files are read"));
            }
            match rest.strip_prefix("//") {
                Some(rest) => rest.strip_prefix("localhost").unwrap_or(rest),
                None => rest,
            }
        }
        _ => href,
    };
    if path.is_empty() || path.contains(['#', '?']) {
        return Err(format!("href={href:?} does not name a whole file"));
    }
    let path = percent_decoded(path).ok_or_else(|| format!("href={href:?} is not a legal URI"))?;
    Ok(including.parent().unwrap_or(Path::new("")).join(path))
}

fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digits = std::str::from_utf8(rest.get(..2)?).ok()?;
        if !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return None;
        }
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        rest = rest.get(2..)?;
    }
    String::from_utf8(bytes).ok().filter(|path| !path.contains('\0'))
}

/// The first content of an element. The parser joins text and CDATA sections that follow each other
/// and keeps the place of the first; the original keeps them apart and reads only the first.
fn content(source: &Source<'_>, node: roxmltree::Node<'_, '_>) -> Content {
    let mut text: Option<String> = None;
    for child in node.children().filter(|child| !child.is_comment()) {
        if !child.is_text() {
            return text.map_or(Content::Other, Content::Text);
        }
        let range = child.range();
        let first = source.text.get(range.clone()).unwrap_or_default();
        if let Some(section) = first.strip_prefix("<![CDATA[") {
            let section = section.strip_suffix("]]>").unwrap_or(section);
            return Content::Text(
                text.unwrap_or_else(|| section.replace("\r\n", "\n").replace('\r', "\n")),
            );
        }
        let followed = source.text.get(range.end..).unwrap_or_default().starts_with("<![CDATA[");
        let whole = child.text().unwrap_or_default();
        text.get_or_insert_default().push_str(&match followed {
            true => unescaped(first),
            false => whole.to_owned(),
        });
        if followed {
            break;
        }
    }
    text.map_or(Content::Nothing, Content::Text)
}

/// Text as written, with its references replaced.
fn unescaped(raw: &str) -> String {
    let wrapped = format!("<t>{raw}</t>");
    match roxmltree::Document::parse(&wrapped) {
        Ok(document) => document.root_element().text().unwrap_or_default().to_owned(),
        Err(_) => raw.to_owned(),
    }
}

/// One file's text, with its line numbers.
struct Source<'a> {
    path: &'a Path,
    shared_path: Arc<Path>,
    text: &'a str,
    line_starts: Vec<usize>,
}

impl<'a> Source<'a> {
    fn new(path: &'a Path, text: &'a str) -> Self {
        let line_starts = text.match_indices('\n').map(|(index, _)| index + 1).collect();
        Source { path, shared_path: path.into(), text, line_starts }
    }

    fn parse(&self) -> Result<roxmltree::Document<'a>, Problem> {
        let unclosed =
            refuse_excess(self.text).map_err(|(offset, kind)| self.error_at(offset, kind))?;
        let options = roxmltree::ParsingOptions {
            // It cannot declare anything any more.
            allow_dtd: true,
            nodes_limit: 4_000_000,
            ..roxmltree::ParsingOptions::default()
        };
        roxmltree::Document::parse_with_options(self.text, options).map_err(|error| {
            use roxmltree::Error::{NoRootNode, UnclosedRootNode, UnexpectedEndOfStream};
            if let (UnclosedRootNode | NoRootNode, Some(start)) = (&error, unclosed) {
                let what = format!("<{}> is never closed", self.qualified_name(start));
                return self.error_at(start, ProblemKind::Xml(what));
            }
            if let UnexpectedEndOfStream = error {
                let what = "the file ends in the middle of a tag or a text".to_owned();
                return self.error_at(self.text.trim_end().len(), ProblemKind::Xml(what));
            }
            let line = Some(error.pos().row).filter(|_| tells_position(&error));
            let origin = Origin::File { path: self.shared_path.clone(), line };
            Problem::error(origin, ProblemKind::Xml(error.to_string()))
        })
    }

    fn origin_at(&self, offset: usize) -> Origin {
        let line = self.line_starts.partition_point(|start| *start <= offset) + 1;
        Origin::File { path: self.shared_path.clone(), line: u32::try_from(line).ok() }
    }

    fn error_at(&self, offset: usize, kind: ProblemKind) -> Problem {
        Problem::error(self.origin_at(offset), kind)
    }

    /// The name in the start tag at `offset`, prefix included.
    fn qualified_name(&self, offset: usize) -> &'a str {
        let tag = self.text.get(offset + 1..).unwrap_or_default();
        let end = tag.find(|c: char| c.is_ascii_whitespace() || c == '/' || c == '>');
        &tag[..end.unwrap_or(tag.len())]
    }
}

/// Whether the parser knows the place of the error; otherwise it reports 1:1.
fn tells_position(error: &roxmltree::Error) -> bool {
    let start = roxmltree::TextPos::new(1, 1);
    error.pos() != start || error.to_string().contains("1:1")
}

fn too_deep() -> ProblemKind {
    ProblemKind::Bound(format!("elements are nested deeper than {MAX_DEPTH}"))
}

/// Refuses documents that would cost the parser too much; returns where the innermost element
/// starts that is never closed. It recognises tags only roughly: the parser reports ill-formed
/// ones.
fn refuse_excess(text: &str) -> Result<Option<usize>, (usize, ProblemKind)> {
    if let Some((offset, _)) = text.match_indices("xmlns").nth(MAX_NAMESPACES) {
        let bound = format!("xmlns occurs more than {MAX_NAMESPACES} times");
        return Err((offset, ProblemKind::Bound(bound)));
    }
    let mut open = Vec::new();
    let mut offset = 0;
    while let Some(found) = text[offset..].find('<') {
        let start = offset + found;
        let rest = &text[start..];
        let skipped = [("<!--", "-->"), ("<![CDATA[", "]]>"), ("<?", "?>")]
            .into_iter()
            .find_map(|(begin, end)| length_through(rest, begin, end));
        let length = match skipped {
            Some(length) => length,
            None => tag(rest, start, &mut open).map_err(|kind| (start, kind))?,
        };
        offset = start + length;
    }
    Ok(open.pop())
}

/// The length of the tag, or the document type, that the text starts with.
fn tag(rest: &str, start: usize, open: &mut Vec<usize>) -> Result<usize, ProblemKind> {
    let length = tag_length(rest);
    if length > MAX_TAG_BYTES {
        let bound = format!("a tag is longer than {MAX_TAG_BYTES} bytes");
        return Err(ProblemKind::Bound(bound));
    }
    let text = &rest[..length];
    if text.starts_with("<!") {
        if text.contains('[') {
            let bound = "a document type that declares something is not read; use xi:include";
            return Err(ProblemKind::Bound(bound.into()));
        }
    } else if text.starts_with("</") {
        open.pop();
    } else if !text.ends_with("/>") {
        open.push(start);
    }
    if open.len() > MAX_DEPTH { Err(too_deep()) } else { Ok(length) }
}

/// The bytes from `begin`, where the text starts with it, through `end`.
fn length_through(text: &str, begin: &str, end: &str) -> Option<usize> {
    let inside = text.strip_prefix(begin)?;
    let length = inside.find(end).map_or(inside.len(), |found| found + end.len());
    Some(begin.len() + length)
}

/// Bytes from `<` to the `>` that is in no quotes, or to the end.
fn tag_length(tag: &str) -> usize {
    let mut quote = None;
    for (index, byte) in tag.bytes().enumerate() {
        match (quote, byte) {
            (None, b'>') => return index + 1,
            (None, b'"' | b'\'') => quote = Some(byte),
            (Some(open), _) if open == byte => quote = None,
            _ => {}
        }
        if index > MAX_TAG_BYTES {
            break;
        }
    }
    tag.len()
}

/// The text of a file: UTF-8 unless it has a byte order mark or an XML declaration of another
/// encoding.
pub(super) fn decode(bytes: &[u8]) -> Result<String, String> {
    let utf16 = |bytes: &[u8], number: fn([u8; 2]) -> u16| {
        let (pairs, rest) = bytes.as_chunks::<2>();
        let units = pairs.iter().map(|pair| number(*pair));
        match rest {
            [] => {
                char::decode_utf16(units).collect::<Result<String, _>>().map_err(|e| e.to_string())
            }
            _ => Err("odd length in UTF-16".to_owned()),
        }
    };
    if let Some(rest) = bytes.strip_prefix(b"\xff\xfe") {
        return utf16(rest, u16::from_le_bytes);
    }
    if let Some(rest) = bytes.strip_prefix(b"\xfe\xff") {
        return utf16(rest, u16::from_be_bytes);
    }
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    match declared_encoding(bytes).map(|name| name.to_ascii_lowercase()).as_deref() {
        None | Some("utf-8" | "utf8" | "us-ascii" | "ascii") => std::str::from_utf8(bytes)
            .map(str::to_owned)
            .map_err(|error| format!("{error} (line {})", line_of(bytes, error.valid_up_to()))),
        Some("iso-8859-1" | "iso8859-1" | "iso8859_1" | "latin1") => {
            Ok(bytes.iter().copied().map(char::from).collect())
        }
        Some(other) => Err(format!("its encoding is {other:?}")),
    }
}

fn line_of(bytes: &[u8], offset: usize) -> usize {
    bytes.iter().take(offset).filter(|byte| **byte == b'\n').count() + 1
}

/// The encoding in `<?xml ... encoding="..."?>`.
fn declared_encoding(bytes: &[u8]) -> Option<&str> {
    let declaration = bytes.strip_prefix(b"<?xml")?;
    let end = declaration.windows(2).take(256).position(|pair| pair == b"?>")?;
    let declaration = std::str::from_utf8(declaration.get(..end)?).ok()?;
    let (_, value) = declaration.split_once("encoding")?;
    let mut value = value.trim_start().strip_prefix('=')?.trim_start().chars();
    let quote = value.next().filter(|c| matches!(c, '"' | '\''))?;
    value.as_str().split(quote).next()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    type Files<'a> = &'a [(&'a str, &'a str)];

    /// A directory with these files.
    fn directory(files: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(dir.path().join(name), text).unwrap();
        }
        dir
    }

    fn read_in(
        dir: &tempfile::TempDir,
        name: &str,
        includes: Includes,
    ) -> Result<Element, Problem> {
        read(&dir.path().join(name), includes, &mut FileReader::default())
    }

    /// The first file's tree as text, or the problem without the directory.
    fn shape(files: &[(&str, &str)]) -> String {
        let dir = directory(files);
        match read_in(&dir, files[0].0, Includes::Followed) {
            Ok(element) => outline(&element),
            Err(problem) => problem.to_string().replace(&format!("{}/", dir.path().display()), ""),
        }
    }

    fn outline(element: &Element) -> String {
        let mut text = element.name.clone();
        if let Content::Text(content) = &element.content
            && !content.trim().is_empty()
        {
            text += &format!("={content:?}");
        }
        let children: Vec<String> = element.children.iter().map(outline).collect();
        match children.is_empty() {
            true => text,
            false => format!("{text}({})", children.join(" ")),
        }
    }

    #[test]
    fn the_text_of_an_element_is_its_first_child_node() {
        let cases = [
            ("<a>x</a>", Ok(Some("x"))),
            ("<a> x\n</a>", Ok(Some(" x\n"))),
            ("<a/>", Ok(None)),
            ("<a></a>", Ok(None)),
            ("<a><!-- c --></a>", Ok(None)),
            ("<a>x<!-- c -->y</a>", Ok(Some("xy"))),
            ("<a><!-- c -->x</a>", Ok(Some("x"))),
            ("<a><![CDATA[<x>&amp;]]></a>", Ok(Some("<x>&amp;"))),
            ("<a>&lt;x&#62;<![CDATA[y]]></a>", Ok(Some("<x>"))),
            ("<a>\n<![CDATA[y]]></a>", Ok(Some("\n"))),
            ("<a><![CDATA[y]]>x</a>", Ok(Some("y"))),
            ("<a><![CDATA[\r\ny]]></a>", Ok(Some("\ny"))),
            ("<a>x<!-- c --><![CDATA[y]]></a>", Ok(Some("x"))),
            ("<a>&amp;&quot;&#x41;</a>", Ok(Some("&\"A"))),
            ("<a>x<b/>y</a>", Ok(Some("x"))),
            ("<a>x<?p i?>y</a>", Ok(Some("x"))),
            ("<a><b/>x</a>", Err(())),
            ("<a><?p i?>x</a>", Err(())),
        ];
        for (xml, expected) in cases {
            let dir = directory(&[("f.xml", xml)]);
            let element = read_in(&dir, "f.xml", Includes::Followed).unwrap();
            assert_eq!(element.text().map_err(|_| ()), expected, "{xml}");
        }
    }

    #[test]
    fn includes_are_replaced_by_what_they_name() {
        let xi = "xmlns:xi='http://www.w3.org/2001/XInclude'";
        let including = |inside: &str| format!("<c {xi}>{inside}</c>");
        let cases: [(&str, Files<'_>, &str); 13] = [
            (
                &including("<p/><xi:include href='b.xml'/>"),
                &[("b.xml", "<c><q>1</q></c>")],
                "c(p c(q=\"1\"))",
            ),
            (&including("<xi:include href='b%20b.xml'/>"), &[("b b.xml", "<q/>")], "c(q)"),
            (
                &including("<xi:include href='b.xml'/>"),
                &[
                    (
                        "b.xml",
                        "<d xmlns:i='http://www.w3.org/2001/XInclude'><i:include href='e.xml'/></d>",
                    ),
                    ("e.xml", "<e/>"),
                ],
                "c(d(e))",
            ),
            (
                &including(
                    "<xi:include href='no.xml'><xi:fallback><p/><q/></xi:fallback></xi:include>",
                ),
                &[],
                "c(p q)",
            ),
            (&including("<xi:include href='no.xml'><xi:fallback/></xi:include>"), &[], "c"),
            (
                &including(
                    "<xi:include href='no.xml'><xi:fallback><xi:include href='b.xml'/></xi:fallback></xi:include>",
                ),
                &[("b.xml", "<q/>")],
                "c(q)",
            ),
            (
                &including("\n<xi:include href='no.xml'/>"),
                &[],
                "a.xml:2: xi:include: no.xml cannot be read: No such file or directory (os error 2); expected a file, or a <xi:fallback>",
            ),
            (
                &including("<xi:include href='b.xml'><xi:fallback/></xi:include>"),
                &[("b.xml", "\n<q>")],
                "b.xml:2: is not well-formed XML: <q> is never closed",
            ),
            (
                &including("<xi:include href='a.xml'/>"),
                &[],
                "a.xml:1: xi:include: a.xml includes itself",
            ),
            (
                &including("<xi:include href='http://h/b.xml'/>"),
                &[],
                "a.xml:1: xi:include: href=\"http://h/b.xml\"; only files are read",
            ),
            (
                &including("<xi:include href='b.xml' parse='text'/>"),
                &[],
                "a.xml:1: xi:include: parse=\"text\"; only parse=\"xml\" is read",
            ),
            (&including("<xi:include/>"), &[], "a.xml:1: xi:include: has no href"),
            (
                &including("<xi:fallback/>"),
                &[],
                "a.xml:1: xi:include: <fallback> outside of an include",
            ),
        ];
        for (first, others, expected) in cases {
            let files: Vec<(&str, &str)> =
                std::iter::once(("a.xml", first)).chain(others.iter().copied()).collect();
            assert_eq!(shape(&files), expected, "{first}");
        }
    }

    #[test]
    fn a_chain_of_includes_is_bounded() {
        let link =
            |next: usize| format!("<c xmlns:xi='{XINCLUDE}'><xi:include href='{next}.xml'/></c>");
        let texts: Vec<(String, String)> =
            (0..40).map(|index| (format!("{index}.xml"), link(index + 1))).collect();
        let files: Vec<(&str, &str)> =
            texts.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
        assert_eq!(shape(&files), "16.xml:1: xi:include: more than 16 files include each other");
    }

    #[test]
    fn includes_that_multiply_are_bounded() {
        let twice = |next: usize| {
            format!(
                "<c xmlns:xi='{XINCLUDE}'><xi:include href='{next}'/><xi:include href='{next}'/></c>"
            )
        };
        let texts: Vec<(String, String)> = (0..12)
            .map(|index| (format!("{index}"), twice(index + 1)))
            .chain([("12".into(), "<c/>".into())])
            .collect();
        let files: Vec<(&str, &str)> =
            texts.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
        assert!(shape(&files).ends_with("is refused: more than 256 files are read"));
    }

    #[test]
    fn an_include_is_a_plain_element_where_none_is_followed() {
        let dir = directory(&[(
            "a.xml",
            &format!("<c xmlns:xi='{XINCLUDE}'><xi:include href='b'/></c>"),
        )]);
        let element = read_in(&dir, "a.xml", Includes::Plain).unwrap();
        assert_eq!(outline(&element), "c(xi:include)");
    }

    #[test]
    fn hostile_documents_are_refused_quickly() {
        let deep = format!("{}{}", "<a>".repeat(100_000), "</a>".repeat(100_000));
        let wide_tag =
            format!("<a {}/>", (0..100_000).map(|n| format!("b{n}='' ")).collect::<String>());
        let namespaces = (0..300).map(|n| format!("<a xmlns:n{n}='u{n}'/>")).collect::<String>();
        let laughs = "<!DOCTYPE a [<!ENTITY l 'lol'><!ENTITY m '&l;&l;&l;'>]><a>&m;</a>";
        let file = "<!DOCTYPE a [<!ENTITY l SYSTEM 'file:///etc/passwd'>]><a>&l;</a>";
        let cases = [
            (deep.as_str(), "f:1: is refused: elements are nested deeper than 64"),
            (&wide_tag, "f:1: is refused: a tag is longer than 4096 bytes"),
            (&format!("<r>{namespaces}</r>"), "f:1: is refused: xmlns occurs more than 256 times"),
            (
                laughs,
                "f:1: is refused: a document type that declares something is not read; use xi:include",
            ),
            (
                file,
                "f:1: is refused: a document type that declares something is not read; use xi:include",
            ),
            (
                "<a>\n<b>&undefined;</b></a>",
                "f:2: is not well-formed XML: unknown entity reference 'undefined' at 2:4",
            ),
            ("", "f: is not well-formed XML: the document does not have a root node"),
            ("<a>\n<broken", "f:2: is not well-formed XML: <broken> is never closed"),
            ("\n<broken", "f:2: is not well-formed XML: <broken> is never closed"),
            ("<broken", "f:1: is not well-formed XML: <broken> is never closed"),
            (
                "<a>\n<b c='",
                "f:2: is not well-formed XML: the file ends in the middle of a tag or a text",
            ),
            ("<a>\n<!-- ", "f:2: is not well-formed XML: expected '-->' at 2:6"),
            ("broken", "f:1: is not well-formed XML: unknown token at 1:1"),
            (
                "<a>\n<b/>\n</a\n\n",
                "f:3: is not well-formed XML: the file ends in the middle of a tag or a text",
            ),
            ("<a/><b/>", "f:1: is not well-formed XML: unknown token at 1:5"),
            (
                "<a x='1' x='2'/>",
                "f:1: is not well-formed XML: attribute 'x' at 1:10 is already defined",
            ),
        ];
        for (xml, expected) in cases {
            assert_eq!(shape(&[("f", xml)]), expected, "{}", &xml[..xml.len().min(80)]);
        }
        let hidden = format!("<!DOCTYPE a SYSTEM '<!--'>{deep}<!-- -->");
        assert_eq!(shape(&[("f", &hidden)]), "f:1: is refused: elements are nested deeper than 64");
        assert_eq!(shape(&[("f", "<!DOCTYPE a SYSTEM 'no.dtd'><a><!-- <!DOCTYPE [ --></a>")]), "a");
    }

    #[test]
    fn text_is_decoded_as_it_says() {
        let utf16 = |text: &str, mark: [u8; 2], bytes: fn(u16) -> [u8; 2]| -> Vec<u8> {
            mark.into_iter().chain(text.encode_utf16().flat_map(bytes)).collect()
        };
        let cases: Vec<(Vec<u8>, Result<&str, ()>)> = vec![
            ("<a>é</a>".into(), Ok("<a>é</a>")),
            (b"\xef\xbb\xbf<a/>".to_vec(), Ok("<a/>")),
            (utf16("<a>é</a>", [0xff, 0xfe], u16::to_le_bytes), Ok("<a>é</a>")),
            (utf16("<a>é</a>", [0xfe, 0xff], u16::to_be_bytes), Ok("<a>é</a>")),
            (b"\xff\xfe<".to_vec(), Err(())),
            (
                b"<?xml version='1.0' encoding='ISO-8859-1'?><a>\xe9</a>".to_vec(),
                Ok("<?xml version='1.0' encoding='ISO-8859-1'?><a>é</a>"),
            ),
            (b"<?xml version='1.0' encoding=\"Shift_JIS\"?><a/>".to_vec(), Err(())),
            (b"<a>\xe9</a>".to_vec(), Err(())),
        ];
        for (bytes, expected) in cases {
            assert_eq!(decode(&bytes).as_deref().map_err(|_| ()), expected, "{bytes:?}");
        }
    }

    /// Text that is often nearly XML.
    fn nearly_xml() -> impl Strategy<Value = String> {
        let piece = prop_oneof![
            Just("<a>".to_owned()),
            Just("</a>".to_owned()),
            Just("<a b='c'/>".to_owned()),
            Just("<!-- ".to_owned()),
            Just("-->".to_owned()),
            Just("<![CDATA[".to_owned()),
            Just("]]>".to_owned()),
            Just("<?xml version='1.0'?>".to_owned()),
            Just("<!DOCTYPE a [".to_owned()),
            Just("]>".to_owned()),
            Just("<xi:include xmlns:xi='http://www.w3.org/2001/XInclude' href='f'/>".to_owned()),
            Just("&amp;&#0;&x;".to_owned()),
            "\\PC{0,4}",
        ];
        proptest::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #[test]
        fn no_text_and_no_bytes_panic(text in nearly_xml(), bytes: Vec<u8>) {
            let dir = directory(&[("f", &text), ("wrapped", &format!("<a>{text}</a>"))]);
            std::fs::write(dir.path().join("bytes"), bytes).unwrap();
            for name in ["f", "wrapped", "bytes"] {
                for includes in [Includes::Followed, Includes::Plain] {
                    if let Ok(element) = read_in(&dir, name, includes) {
                        let _ = element.text();
                    }
                }
            }
        }
    }
}
