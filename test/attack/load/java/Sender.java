import java.io.BufferedInputStream;
import java.io.DataInputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Future;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Writes what its input says (wire.go has the format) with Apache Kafka's own client, and says "ok" after each batch. Whatever
 * goes wrong ends it.
 *
 * <p>Arguments: brokers, transactional id, the codec of what is plain, the codec of transactions.
 */
public class Sender {
  private static final int PLAIN = 0, COMMIT = 1;

  public static void main(String[] args) {
    try (KafkaProducer<byte[], byte[]> plain = producer(args[0], null, args[2]);
        KafkaProducer<byte[], byte[]> transactional = producer(args[0], args[1], args[3])) {
      DataInputStream in = new DataInputStream(new BufferedInputStream(System.in));
      boolean begun = false;
      for (int how = in.read(); how >= 0; how = in.read()) {
        List<ProducerRecord<byte[], byte[]>> records = read(in);
        if (how == PLAIN) {
          send(plain, records);
        } else {
          if (!begun) {
            transactional.initTransactions();
            begun = true;
          }
          transactional.beginTransaction();
          send(transactional, records);
          if (how == COMMIT) {
            transactional.commitTransaction();
          } else {
            transactional.abortTransaction();
          }
        }
        System.out.println("ok");
      }
    } catch (Exception e) {
      e.printStackTrace();
      Runtime.getRuntime().halt(1); // closing would wait for brokers
    }
  }

  private static KafkaProducer<byte[], byte[]> producer(String brokers, String transactionalId, String codec) {
    Map<String, Object> config = new HashMap<>();
    config.put("bootstrap.servers", brokers);
    config.put("key.serializer", ByteArraySerializer.class);
    config.put("value.serializer", ByteArraySerializer.class);
    config.put("compression.type", codec);
    config.put("max.block.ms", 20_000);
    config.put("request.timeout.ms", 10_000);
    config.put("delivery.timeout.ms", 25_000);
    if (transactionalId != null) {
      config.put("transactional.id", transactionalId);
      config.put("transaction.timeout.ms", 10_000);
    }
    return new KafkaProducer<>(config);
  }

  private static void send(KafkaProducer<byte[], byte[]> producer, List<ProducerRecord<byte[], byte[]>> records) throws Exception {
    List<Future<?>> sent = new ArrayList<>();
    for (ProducerRecord<byte[], byte[]> record : records) {
      sent.add(producer.send(record));
    }
    producer.flush();
    for (Future<?> one : sent) {
      one.get();
    }
  }

  private static List<ProducerRecord<byte[], byte[]>> read(DataInputStream in) throws IOException {
    List<ProducerRecord<byte[], byte[]>> records = new ArrayList<>();
    for (int n = in.readInt(); n > 0; n--) {
      String topic = text(bytes(in));
      byte[] key = bytes(in);
      byte[] value = bytes(in);
      long timestamp = in.readLong();
      ProducerRecord<byte[], byte[]> record = new ProducerRecord<>(topic, null, timestamp < 0 ? null : timestamp, key, value);
      for (int headers = in.readInt(); headers > 0; headers--) {
        record.headers().add(new RecordHeader(text(bytes(in)), bytes(in)));
      }
      records.add(record);
    }
    return records;
  }

  private static String text(byte[] bytes) {
    return new String(bytes, StandardCharsets.UTF_8);
  }

  private static byte[] bytes(DataInputStream in) throws IOException {
    int length = in.readInt();
    return length < 0 ? null : in.readNBytes(length);
  }
}
