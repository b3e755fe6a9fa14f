package io.github.headrace.push;

import java.io.IOException;
import java.io.StringWriter;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import javax.tools.JavaCompiler;
import javax.tools.StandardJavaFileManager;
import javax.tools.ToolProvider;

/** A page of docs/. Tests run its programs unchanged. */
public final class TestPage {
    private final String text;

    private TestPage(String text) {
        this.text = text;
    }

    /** Reads docs/NAME. */
    public static TestPage of(String name) throws IOException {
        for (Path p = Path.of("").toAbsolutePath(); p != null; p = p.getParent()) {
            Path page = p.resolve("docs").resolve(name);
            if (Files.exists(page)) {
                return new TestPage(Files.readString(page));
            }
        }
        throw new IOException("no docs/" + name + " above " + Path.of("").toAbsolutePath());
    }

    /** Returns the first program in a language that contains a text, with the address and the token file of a master put in. */
    public String program(String language, String with, TestMaster master) throws IOException {
        Matcher m = Pattern.compile("```" + language + "\n(.*?)```", Pattern.DOTALL).matcher(text);
        while (m.find()) {
            if (m.group(1).contains(with)) {
                return m.group(1).replace("127.0.0.1:7070", master.address())
                    .replace("/etc/headrace/pusher.token", master.state().resolve("token").toString());
            }
        }
        throw new IOException("the page has no program in " + language + " that contains " + with);
    }

    /** Compiles statements as the body of a method with these parameters, in a folder, and calls it. */
    public static void run(Path folder, String imports, String parameters, String statements, Object... arguments) throws Exception {
        Path source = Files.createDirectories(folder).resolve("OfThePage.java");
        Files.writeString(source, imports + "\npublic class OfThePage {\npublic static void run(" + parameters + ") throws Exception {\n" + statements + "}\n}\n");
        JavaCompiler javac = ToolProvider.getSystemJavaCompiler();
        String classes = System.getProperty("surefire.test.class.path", System.getProperty("java.class.path"));
        StringWriter said = new StringWriter();
        try (StandardJavaFileManager files = javac.getStandardFileManager(null, null, null)) {
            List<String> options = List.of("-proc:none", "-classpath", classes, "-d", folder.toString());
            if (!javac.getTask(said, files, null, options, null, files.getJavaFileObjects(source.toFile())).call()) {
                throw new IllegalStateException(said.toString());
            }
        }
        try (URLClassLoader loader = new URLClassLoader(new URL[] {folder.toUri().toURL()}, TestPage.class.getClassLoader())) {
            Method run = Arrays.stream(loader.loadClass("OfThePage").getMethods()).filter(m -> m.getName().equals("run")).findFirst().orElseThrow();
            run.invoke(null, arguments);
        } catch (InvocationTargetException e) {
            throw new IllegalStateException("the program of the page has failed", e.getCause());
        }
    }
}
