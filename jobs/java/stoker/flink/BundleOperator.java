package stoker.flink;

import java.util.Arrays;
import org.apache.flink.streaming.api.operators.AbstractStreamOperator;
import org.apache.flink.streaming.api.operators.OneInputStreamOperator;
import org.apache.flink.streaming.api.watermark.Watermark;
import org.apache.flink.streaming.runtime.streamrecord.StreamRecord;
import org.apache.flink.streaming.runtime.watermarkstatus.WatermarkStatus;

/**
 * Puts records that follow each other into one: a call from Flink into Python costs as much as what Python decides about
 * a record.
 *
 * <p>A bundle is its records one after the other, each as its time in ms (long), its length (int) and its bytes, big
 * endian; {@code analytics.bundles} reads it. Its own time is that of its latest record. It goes on when it is full, when
 * its first record has waited long enough, and before whatever must not overtake a record: a watermark, an idle mark, a
 * checkpoint's barrier, the end. So there is nothing to restore.
 */
public final class BundleOperator extends AbstractStreamOperator<byte[]>
        implements OneInputStreamOperator<byte[], byte[]> {
    private static final long serialVersionUID = 1L;
    private static final int HEAD_BYTES = Long.BYTES + Integer.BYTES;

    private final int maxRecords;
    private final int maxBytes;
    private final long waitMs;

    private transient byte[] buffer;
    private transient int used;
    private transient int records;
    private transient long latestMs;
    private transient boolean timed;

    /**
     * @param maxRecords of a bundle
     * @param maxBytes of a bundle; a larger record makes one of its own
     * @param waitMs how long a record waits for others
     */
    public BundleOperator(int maxRecords, int maxBytes, long waitMs) {
        this.maxRecords = maxRecords;
        this.maxBytes = maxBytes;
        this.waitMs = waitMs;
    }

    @Override
    public void open() throws Exception {
        super.open();
        buffer = new byte[1 << 16];
    }

    @Override
    public void processElement(StreamRecord<byte[]> element) {
        byte[] value = element.getValue();
        if (used + HEAD_BYTES + (long) value.length > maxBytes) {
            flush();
        }
        long atMs = element.getTimestamp();
        latestMs = records == 0 ? atMs : Math.max(latestMs, atMs);
        add(atMs, value);
        if (records >= maxRecords) {
            flush();
        } else if (!timed) {
            timed = true;
            var clock = getProcessingTimeService();
            clock.registerTimer(clock.getCurrentProcessingTime() + waitMs, ignored -> timeUp());
        }
    }

    private void add(long atMs, byte[] value) {
        int end = used + HEAD_BYTES + value.length;
        if (end > buffer.length) {
            buffer = Arrays.copyOf(buffer, Math.max(end, 2 * buffer.length));
        }
        putLong(used, atMs);
        putInt(used + Long.BYTES, value.length);
        System.arraycopy(value, 0, buffer, used + HEAD_BYTES, value.length);
        used = end;
        records++;
    }

    private void putLong(int at, long number) {
        putInt(at, (int) (number >>> Integer.SIZE));
        putInt(at + Integer.BYTES, (int) number);
    }

    private void putInt(int at, int number) {
        for (int index = Integer.BYTES - 1; index >= 0; index--, number >>>= Byte.SIZE) {
            buffer[at + index] = (byte) number;
        }
    }

    private void timeUp() {
        timed = false;
        flush();
    }

    private void flush() {
        if (records > 0) {
            byte[] bundle = Arrays.copyOf(buffer, used);
            used = 0;
            records = 0;
            output.collect(new StreamRecord<>(bundle, latestMs));
        }
    }

    @Override
    public void processWatermark(Watermark mark) throws Exception {
        flush();
        super.processWatermark(mark);
    }

    @Override
    public void processWatermarkStatus(WatermarkStatus status) throws Exception {
        flush();
        super.processWatermarkStatus(status);
    }

    @Override
    public void prepareSnapshotPreBarrier(long checkpointId) {
        flush();
    }

    @Override
    public void finish() throws Exception {
        flush();
        super.finish();
    }
}
