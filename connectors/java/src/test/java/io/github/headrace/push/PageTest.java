package io.github.headrace.push;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Runs the Java program of docs/LANDING.md. */
@Timeout(value = 300, unit = TimeUnit.SECONDS) // only ends a hang
class PageTest {
    @Test
    void theProgramOfThePageLandsItsTransactionOnce() throws Exception {
        try (TestMaster master = TestMaster.start()) {
            master.apply("clicks", "{}");
            String program = TestPage.of("LANDING.md").program("java", "Pusher.open", master);
            for (int again = 0; again < 2; again++) {
                TestPage.run(master.dir().resolve("program"), "import io.github.headrace.push.*;", "String line", program, "{\"n\": 1}");
            }
            assertEquals(1, master.visible("clicks"));
        }
    }
}
